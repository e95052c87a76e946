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
"""The formula of a draft, worked by hand."""

import dataclasses

import numpy as np
import pytest
from tiled_product import LIMITS, NEST, column

from tvm_droplet_ms.draft.hardware import Hardware
from tvm_droplet_ms.draft.penalties import PENALTIES, expected_ns
from tvm_droplet_ms.draft.symbols import Limits, NestValues

CPU = Hardware(
    cores=4,
    vector_bytes=64,
    registers=32,
    caches=(4096, 16384, 1 << 20),
    line=64,
    flops=100.0,
    bandwidths=(200.0, 100.0, 50.0, 10.0),
    launch=1000.0,
)

# Eight vectors of 16 outputs are straight-line code: 65,536 operations at 100 a nanosecond.
COMPUTING = 655.36
# c stays in registers over k and is read and written; a and b come in each turn.
REGISTERS = (2 * 4096 + 8192 + 16384) / 200
# 4 KiB do not fit a turn of k: each column of a, 4 bytes of a line each, is a line each time.
L1 = (2 * 4096 + 8192 * 16 + 16384) / 100
L1_WHOLE_LINES = (2 * 4096 + 8192 + 16384) / 100
# 16 KiB fit a block of rows: all of c and a once, and b once, which stays.
L2 = (2 * 4096 + 8192 + 2048) / 50
L3 = (2 * 4096 + 8192 + 2048) / 10


def together(*parts, cores=4.0, launch=1000.0):
    return (max(parts) + 0.3 * (sum(parts) - max(parts))) / cores + launch


def time(nest=NEST, limits=LIMITS, cpu=CPU, **options):
    return expected_ns([nest], limits, cpu, **options)[0]


def test_a_tiled_product():
    assert time() == pytest.approx(together(COMPUTING, REGISTERS, L1, L2, L3))
    twice = expected_ns([NEST, NEST], LIMITS, CPU)
    assert twice[0] == pytest.approx(2 * time())


def test_one_core_starts_no_threads():
    alone = dataclasses.replace(CPU, cores=1)
    expected = together(COMPUTING, REGISTERS, L1, L2, L3, cores=1.0, launch=0.0)
    assert time(cpu=alone) == pytest.approx(expected)


def test_without_a_penalty():
    parts = (COMPUTING, REGISTERS, L1_WHOLE_LINES, L2, L3)
    assert time(without=["lines"]) == pytest.approx(together(*parts))


def test_lanes_that_do_not_work():
    """Vectors of 4 numbers use a quarter of the lanes, and there are four times as many."""
    narrow = Limits(LIMITS.parallel, np.array([8.0]), LIMITS.unroll)
    # A limit of 8 is less than 16 columns: nothing is vectorised by TVM.
    cpu = dataclasses.replace(CPU, bandwidths=(1e9, 1e9, 1e9, 1e9), launch=1e-9)
    free = {"cores", "registers", "latency"}
    scalar = time(limits=narrow, cpu=cpu, without=free)
    full = time(cpu=cpu, without=free)
    assert full * 4 == pytest.approx(655.36)
    # Rows of 16 are straight-line code then, and the rows of i are no vectors: one lane of 16.
    assert scalar == pytest.approx(16 * full)
    assert time(limits=narrow, cpu=cpu, without={*free, "lanes"}) == pytest.approx(full)


def test_accumulators_that_do_not_fit_and_that_are_too_few():
    cpu = dataclasses.replace(CPU, bandwidths=(1e9, 1e9, 1e9, 1e9), launch=1e-9)
    others = {"cores", "lanes"}
    full = time(cpu=cpu, without=others)
    # 8 accumulators: 6 registers, of which 4 are taken, hold a quarter of them.
    few = dataclasses.replace(cpu, registers=6)
    assert time(cpu=few, without=others) == pytest.approx(4 * full)
    assert time(cpu=few, without={*others, "registers"}) == pytest.approx(full)
    # A single accumulator of the 8 that hide the latency of an addition.
    extents = NEST.extents.copy()
    extents[1], extents[3] = 1, 64
    chain = dataclasses.replace(NEST, extents=extents, touched=NEST.touched.copy())
    chain.touched[0, 1:3] = chain.touched[0, 0]
    assert time(chain, cpu=cpu, without=others) == pytest.approx(8 * full)
    assert time(chain, cpu=cpu, without={*others, "latency"}) == pytest.approx(full)


@pytest.mark.parametrize(("extent", "cores"), [(8, 4.0), (6, 3.0), (5, 2.5), (3, 3.0)])
def test_last_round_of_a_parallel_loop(extent, cores):
    cpu = dataclasses.replace(CPU, launch=1e-9)
    extents = NEST.extents.copy()
    extents[3] = extent
    nest = dataclasses.replace(NEST, extents=extents)
    ideal = time(nest, cpu=cpu, without=["cores"])
    assert time(nest, cpu=cpu) == pytest.approx(ideal * 4 / cores)


def test_llvm_vectorises_what_tvm_does_not():
    """A product whose innermost loop reduces: SRSR. LLVM unrolls it, then vectorises the next."""

    def product(reduced, columns):
        # for j in columns: for k in reduced: c[j] += a[k] * b[k, j]
        extents = column(reduced, columns)
        touched = 4.0 * np.stack(
            [column(1, columns), column(reduced, reduced), column(reduced, reduced * columns)]
        )
        strides = np.stack([column(0, 1), column(1, 0), column(columns, 1)])
        return NestValues(
            extents, touched, touched, strides, [4, 4, 4], (True, False), (True, True), 2.0
        )

    limits = Limits(np.zeros(1), np.array([64.0]), np.zeros(1))
    options = {"limits": limits, "without": set(PENALTIES) - {"lanes"}}
    options["cpu"] = dataclasses.replace(CPU, cores=1, bandwidths=(1e9, 1e9, 1e9, 1e9))
    # 16 x 16: the 16 of k are unrolled, so j is a vector. 64 of k are not.
    assert time(product(16, 16), **options) == pytest.approx(2 * 16 * 16 / 100)
    assert time(product(64, 16), **options) == pytest.approx(16 * 2 * 64 * 16 / 100)


def test_many_points_are_those_one_by_one():
    generator = np.random.default_rng(0)
    points = 40
    extents = 2.0 ** generator.integers(0, 5, (4, points))
    touched = 4.0 * np.cumprod(2.0 ** generator.integers(0, 4, (3, 4, points)), axis=1)
    strides = generator.integers(0, 3, (3, 4, points)).astype(float)
    nest = dataclasses.replace(
        NEST, extents=extents, touched=touched, runs=touched, strides=strides
    )
    limits = Limits(*(2.0 ** generator.integers(0, 7, points) for _ in range(3)))
    together = expected_ns([nest], limits, CPU)
    for point in range(points):
        one = np.array([point])
        alone = NestValues(
            *(values[..., one] for values in (extents, touched, touched, strides)),
            NEST.itemsizes,
            NEST.reduces,
            NEST.single,
            NEST.operations,
        )
        limit = Limits(limits.parallel[one], limits.vector[one], limits.unroll[one])
        assert expected_ns([alone], limit, CPU)[0] == pytest.approx(together[point])


def test_unknown_penalty_is_refused():
    with pytest.raises(ValueError, match=r"without is \['warps'\], expected names of \['lanes'"):
        expected_ns([NEST], LIMITS, CPU, without=["warps"])
