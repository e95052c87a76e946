# SPDX-License-Identifier: Apache-2.0
"""The intrinsics are exact, beside NumPy, for all types and for the greatest sums."""

from itertools import product

import numpy as np
import pytest
from byte_kernels import LIMITS, packed_dense, values

import tvm
from tvm.s_tir import Schedule
from tvm.target import Target
from tvm_droplet_ms.design_space.dot_products.dot_intrinsics import (
    HALVES,
    Dot,
    imported_code,
    register_dots,
)
from tvm_droplet_ms.design_space.dot_products.find_dot import DotUnit, dot_unit, half_unit
from tvm_droplet_ms.host import host_target

ROWS, COLUMNS, DEPTH = 3, 16, 16


def units() -> list[DotUnit]:
    """What this CPU has, with and without VNNI."""
    own = dot_unit(host_target())
    if own is None:
        return []
    return [own] if own.depth == 2 else [own, DotUnit(own.lanes, 2, own.registers)]


def dots() -> list[Dot]:
    half = half_unit(host_target())
    return [
        Dot(lanes, unit.depth, *types, is_wide)
        for unit in (*units(), *([half] if half else []))
        for lanes in unit.lanes
        for types in product(unit.dtypes, repeat=2)
        for is_wide in (False, True)[: 1 + unit.widens]
    ]


@pytest.fixture(scope="module")
def library():
    """A function of each intrinsic: a product of packed weights."""
    register_dots()
    functions = {}
    for dot in dots():
        shape = (COLUMNS // dot.lanes, DEPTH // dot.depth, dot.lanes, dot.depth)

        def where(j, k, dot=dot):
            return j // dot.lanes, k // dot.depth, j % dot.lanes, k % dot.depth

        schedule = Schedule(packed_dense(ROWS, COLUMNS, DEPTH, shape, where, (dot.shared, dot.own)))
        if dot.is_wide:
            copy = schedule.cache_read("c", 0, "global")
            schedule.unsafe_set_dtype(copy, 0, "int16")
        row, column, step = schedule.get_loops(schedule.get_sblock("c"))
        columns, lanes = schedule.split(column, [None, dot.lanes])
        steps, products = schedule.split(step, [None, dot.depth])
        schedule.reorder(row, columns, steps, lanes, products)
        block = schedule.blockize(lanes)
        schedule.decompose_reduction(block, steps)
        if (code := imported_code(dot)) is not None:
            schedule.annotate(row, "pragma_import_llvm", code)
        schedule.tensorize(block, dot.name)
        name = dot.name.replace(".", "_")
        functions[name] = schedule.mod["main"].with_attr("global_symbol", name)
    return tvm.tirx.build(tvm.IRModule(functions), target=host_target())


@pytest.mark.parametrize("dot", dots(), ids=lambda dot: dot.name)
def test_dots_are_exact(library, dot):
    generator = np.random.default_rng(0)
    shapes = (ROWS, DEPTH), (COLUMNS, DEPTH)
    pairs = [[values(generator, *each) for each in zip(shapes, (dot.shared, dot.own), strict=True)]]
    # All factors the least or the greatest: saturation of words or sums would show.
    for one, other in product(LIMITS[dot.shared], LIMITS[dot.own]):
        extremes = zip(shapes, (one, other), pairs[0], strict=True)
        pairs.append([np.full(shape, value, each.dtype) for shape, value, each in extremes])
    for a, w in pairs:
        packed = w.reshape(COLUMNS // dot.lanes, dot.lanes, DEPTH // dot.depth, dot.depth)
        arguments = [a, np.ascontiguousarray(packed.transpose(0, 2, 1, 3))]
        out = tvm.runtime.empty((ROWS, COLUMNS), dot.sums)
        library[dot.name.replace(".", "_")](*map(tvm.runtime.tensor, arguments), out)
        np.testing.assert_array_equal(out.numpy(), a.astype("int64") @ w.T.astype("int64"))


def test_units_follow_the_features_of_a_cpu():
    def unit(cpu: str) -> DotUnit | None:
        return dot_unit(Target({"kind": "llvm", "mcpu": cpu}))

    assert unit("cascadelake") == DotUnit((16, 8, 4), 4, 32)
    assert unit("alderlake") == DotUnit((8, 4), 4, 16)  # VNNI without AVX-512.
    assert unit("skylake-avx512") == DotUnit((16, 8, 4), 2, 32)
    assert unit("haswell") == DotUnit((8, 4), 2, 16)
    assert unit("x86-64") is None
    assert dot_unit(Target("nvidia/nvidia-a100")) is None
    assert half_unit(Target("nvidia/nvidia-a100")) is None
    halves = {
        cpu: half_unit(Target({"kind": "llvm", "mcpu": cpu})) for cpu in ("znver4", "haswell")
    }
    assert halves == {"znver4": DotUnit((16, 8, 4), 2, 32, HALVES), "haswell": None}
    assert half_unit(Target({"kind": "llvm", "mcpu": "cascadelake"})) is None
