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
"""Random search."""

import random

from . import Point, SearchSpace, fresh_point


class RandomSearch:
    """Random search without repetition.

    Parameters
    ----------
    space : SearchSpace
        Space to search.
    generator : random.Random
        Makes all its choices.
    """

    def __init__(self, space: SearchSpace, generator: random.Random) -> None:
        self._space = space
        self._generator = generator
        self._asked: set[Point] = set()

    def ask(self, n: int) -> list[Point]:
        """Up to n points; see `AskTell`."""
        points: list[Point] = []
        while len(points) < n:
            point = fresh_point(self._space, self._asked, self._generator)
            if point is None:
                break
            self._asked.add(point)
            points.append(point)
        return points

    def tell(self, point: Point, secs: float) -> None:
        """It learns nothing."""
