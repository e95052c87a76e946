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
"""The published coordinate descent on schedules; the algorithm is in ``coordinate_descent``."""

from collections.abc import Callable, Generator

from ..candidates import Candidate
from ..explorers.base import SearchContext
from ..neighbourhood import Neighbourhood, Point
from ..probing import Prober
from .base import Batch
from .coordinate_descent import Times, coordinate_descent


class CoordinateDescent:
    """Descends from the best schedule of the design spaces over one decision at a time.

    Parameters
    ----------
    search : SearchContext
        The run.
    prober : Prober
        Finds the neighbourhood of a point.
    batch_size : Callable[[], int]
        The most candidates of the next batch.
    """

    def __init__(
        self, search: SearchContext, prober: Prober, batch_size: Callable[[], int]
    ) -> None:
        self.batch_size = batch_size
        self._search = search
        self._replayer = search.replayer
        self._history = search.history
        self._spaces = search.spaces
        self._prober = prober
        self._unmeasured: dict[Point, Candidate] = {}
        self._sketch = 0

    def descend(self) -> Generator[Batch, None, bool]:
        """Descend from the best schedule to a local optimum; see ``Descent``."""
        found = self._search.best()
        if found is None:
            return False
        best, (self._sketch, start) = found
        search = coordinate_descent(
            start, best.secs, self._neighbourhood, self._known, self.batch_size
        )
        points = next(search, None)
        while points is not None:
            candidates = {point: self._unmeasured[point] for point in points}
            yield list(candidates.values())
            try:
                points = search.send(
                    {point: self._history.secs(tried) for point, tried in candidates.items()}
                )
            except StopIteration:
                points = None
        # A neighbour that the machine failed to measure may be better: that is no local optimum.
        return all(candidate in self._history for candidate in self._unmeasured.values())

    def _neighbourhood(self, point: Point) -> Neighbourhood:
        self._unmeasured.clear()
        sketch = self._spaces.sketches[self._sketch]
        return self._prober.neighbourhood(sketch, self._spaces.trace((self._sketch, point)))

    def _known(self, point: Point) -> Times | None:
        """The times of a point that was measured, none if it is rejected; None for a new one."""
        candidate = self._replayer.replay(self._spaces.trace((self._sketch, point)))
        if candidate is None:
            return ()
        if candidate in self._history:
            return self._history.secs(candidate)
        if any(candidate.module == other.module for other in self._unmeasured.values()):
            # Another point of the same module is measured already.
            return ()
        self._unmeasured[point] = candidate
        return None
