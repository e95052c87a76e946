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
"""The surrogate alone, choosing among measured schedules."""

import numpy as np
import pytest

from tvm_droplet_ms.bench.library import find_space
from tvm_droplet_ms.bench.pool_replay import CHECKPOINTS, Pool, choose, fractions
from tvm_droplet_ms.bench.space import Space


@pytest.fixture(scope="module")
def bowl():
    """Points on a line whose times grow with the distance from one of them."""
    places = np.linspace(-3.0, 3.0, 200)
    return Pool(places[:, None], 1e-3 * (1.0 + (places - 1.7) ** 2))


def test_each_schedule_is_chosen_once(bowl):
    chosen = choose(bowl, 30, 8, seed=0)
    assert len(chosen) == len(set(chosen)) == 30


def test_first_batch_is_random_and_the_rest_is_not(bowl):
    first, other = choose(bowl, 24, 8, seed=0), choose(bowl, 24, 8, seed=1)
    assert set(first[:8]) != set(other[:8])
    best = int(np.argmin(bowl.secs))
    assert best in first[8:] or best in first[:8]
    # 24 random ones of 200 find the best in one run of eight.
    found = [best in choose(bowl, 24, 8, seed) for seed in range(6)]
    assert all(found)


def test_fractions_are_of_the_best_so_far():
    secs = np.array([4.0, 2.0, 1.0] + [8.0] * 200)
    pool = Pool(np.zeros((203, 1)), secs)
    order = [*range(3, 10), 0, *range(10, 17), 1, *range(17, 200), 2]
    assert fractions(pool, order) == pytest.approx([1 / 4, 1 / 2, 1 / 2, 1 / 2, 1 / 2])
    assert CHECKPOINTS[:2] == (8, 16)


def test_pool_holds_the_random_schedules_of_a_sample():
    space = Space.load(find_space("whole_softmax"))
    pool = Pool.of_space(space)
    assert len(pool.secs) == space.origins.count("random") == 985
    assert len(pool.vectors) == 985
    assert pool.secs.min() >= space.optimum
