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
"""Decisions in words, for the log."""

from .published.decisions import Decision, Sketch, largest_parallel_extent
from .published.neighbourhood import Point

__all__ = ["Decision", "Sketch", "describe", "describe_change", "largest_parallel_extent"]


def describe(sketch: Sketch, point: Point) -> str:
    """The decisions of a point: ``"SamplePerfectTile#7 [1, 4], ..."``."""
    described = (f"{_name(one)} {list(one.value(point))}" for one in sketch.decisions)
    return ", ".join(described) or "no decision"


def describe_change(sketch: Sketch, before: Point, after: Point) -> str:
    """The decisions that differ: ``"SamplePerfectTile#7 [1, 4] -> [2, 2]"``."""
    changes = (
        f"{_name(one)} {list(one.value(before))} -> {list(one.value(after))}"
        for one in sketch.decisions
        if one.value(before) != one.value(after)
    )
    return ", ".join(changes) or "no decision"


def _name(decision: Decision) -> str:
    """The kind and the position of its instruction."""
    return f"{decision.kind.name}#{decision.inst}"
