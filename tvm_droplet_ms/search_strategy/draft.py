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
"""What a strategy knows of a draft: scores of schedules that nothing has replayed."""

from typing import Protocol

import numpy as np

from .candidates import Replayer
from .design_spaces import DesignSpaces


class TaskDraft(Protocol):
    """A draft of one task."""

    def scores(self, sketch: int, points: np.ndarray) -> np.ndarray:
        """The expected throughput of points, relative to the best.

        Parameters
        ----------
        sketch : int
            The index of their sketch.
        points : np.ndarray
            Their decisions, of shape ``(points, integers)``.

        Returns
        -------
        scores : np.ndarray
            Of shape ``(points,)``; negative infinity where nothing is known.
        """


class Draft(Protocol):
    """Scores schedules by their decisions alone, before anything is measured."""

    def begin(self, spaces: DesignSpaces, replayer: Replayer) -> TaskDraft:
        """Make the draft of a task."""
