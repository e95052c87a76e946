# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""Where traces lie: the design spaces' sketches, and points of decisions in them."""

from collections.abc import Sequence

import numpy as np

from tvm.s_tir import Trace

from .decisions import Sketch
from .encoding import Encoding
from .neighbourhood import Point

Place = tuple[int, Point]
"""A sketch and its decisions."""


class Places:
    """The points of a task's design spaces.

    Parameters
    ----------
    design_spaces : Sequence[Trace]
        The traces of the design spaces, with all their decisions.

    Attributes
    ----------
    sketches : list[Sketch]
        The decisions of each design space.
    """

    def __init__(self, design_spaces: Sequence[Trace]) -> None:
        self._traces = [trace.simplified(remove_postproc=True) for trace in design_spaces]
        self.sketches = [Sketch.of(trace) for trace in self._traces]
        self._encoding = Encoding([sketch.decisions for sketch in self.sketches])

    def find(self, trace: Trace) -> Place | None:
        """Where a trace lies; None for one of another design space."""
        trace = trace.simplified(remove_postproc=True)
        sketch = Sketch.of(trace)
        if sketch not in self.sketches:
            return None
        return self.sketches.index(sketch), sketch.read(trace)

    def start(self, sketch: int) -> Point:
        """The decisions that a design space was drawn with."""
        return self.sketches[sketch].read(self._traces[sketch])

    def trace(self, place: Place) -> Trace:
        """The trace of a place, without postprocessors."""
        sketch, point = place
        return self.sketches[sketch].write(self._traces[sketch], point)

    def vectors(self, places: Sequence[Place]) -> np.ndarray:
        """The vectors of places, near where their schedules are alike; see ``Encoding``."""
        return self._encoding.vectors(places)
