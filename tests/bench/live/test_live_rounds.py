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
"""Rounds of timing: fast programs are in all of them, slow ones in a few."""

import pytest

from tvm_droplet_ms.bench.live.rounds import time_in_rounds


class Program:
    """Takes the same seconds each time."""

    def __init__(self, secs):
        self.secs, self.calls = secs, 0

    def __call__(self):
        self.calls += 1
        return self.secs


@pytest.mark.parametrize(
    ("secs", "rounds", "warming"),
    [(0.01, 21, 2), (1.0, 21, 2), (1.2, 21, 1), (2.0, 15, 1), (9.0, 3, 1), (60.0, 3, 1)],
)
def test_slow_programs_run_in_fewer_rounds(secs, rounds, warming):
    program = Program(secs)
    assert time_in_rounds({"program": program}, 21) == {"program": [secs] * rounds}
    assert program.calls == rounds + warming


def test_few_rounds_are_not_exceeded():
    assert len(time_in_rounds({"slow": Program(5.0)}, 2)["slow"]) == 2


def test_programs_take_turns():
    order = []

    def program(name, secs):
        def run():
            order.append(name)
            return secs

        return run

    time_in_rounds({"fast": program("fast", 0.1), "slow": program("slow", 9.0)}, 5)
    assert order[3:] == ["fast", "slow"] * 3 + ["fast"] * 2
