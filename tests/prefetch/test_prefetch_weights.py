# SPDX-License-Identifier: Apache-2.0
"""Tests of the pass that fetches weights, on scheduled kernels."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from tvm_ffi.structural import structural_map, structural_visit

import tvm
from tvm import te, tirx
from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.sym import Analyzer
from tvm.target import Target
from tvm_droplet_ms.measure import build_scheduled
from tvm_droplet_ms.measure.prefetch.prefetch_weights import LEAST_BYTES, PrefetchWeights

ROWS, DEPTH, PANELS, COLUMNS = 28, 256, 4, 64
WEIGHT_LINES = PANELS * DEPTH * COLUMNS * 4 // 64


def product_of_panels(depth: int = DEPTH, marked: bool = True, fused: bool = False) -> IRModule:
    """``C[i, 64 p + j] = sum over k of A[i, k] * W[p, k, j]``, walked through 7 times a panel."""
    a = te.placeholder((ROWS, depth), name="A")
    w = te.placeholder((PANELS, depth, COLUMNS), name="W")
    k = te.reduce_axis((0, depth), name="k")
    c = te.compute(
        (ROWS, PANELS * COLUMNS),
        lambda i, j: te.sum(a[i, k] * w[j // COLUMNS, k, j % COLUMNS], axis=[k]),
        name="C",
    )
    function = te.create_prim_func([a, w, c])
    if marked:
        function = function.with_attr("layout_free_buffers", [1])
    schedule = Schedule(IRModule({"main": function}))
    block = schedule.get_sblock("C")
    i, j, k = schedule.get_loops(block)
    i_0, i_1 = schedule.split(i, [None, 4])
    j_0, j_1, j_2 = schedule.split(j, [PANELS, 4, 16])
    schedule.reorder(j_0, i_0, k, i_1, j_1, j_2)
    if fused:
        schedule.parallel(schedule.fuse(j_0, i_0))
    schedule.unroll(i_1)
    schedule.unroll(j_1)
    schedule.vectorize(j_2)
    schedule.decompose_reduction(block, k)
    return schedule.mod


def product_of_tiles(walks: int) -> IRModule:
    """A product whose blocks read tiles of 1 kB of the weights, each once a walk."""
    a = te.placeholder((walks, DEPTH), name="A")
    w = te.placeholder((16, DEPTH, 16), name="W")
    k = te.reduce_axis((0, DEPTH), name="k")
    c = te.compute(
        (walks, 256), lambda i, j: te.sum(a[i, k] * w[j // 16, k, j % 16], axis=[k]), name="C"
    )
    function = te.create_prim_func([a, w, c]).with_attr("layout_free_buffers", [1])
    schedule = Schedule(IRModule({"main": function}))
    i, j, k = schedule.get_loops(schedule.get_sblock("C"))
    panel, lane = schedule.split(j, [16, 16])
    tile, step = schedule.split(k, [None, 16])
    schedule.reorder(panel, i, tile, step, lane)
    schedule.blockize(step)
    return schedule.mod


def fetched_offsets(mod: IRModule, caches: set[int] | None = None) -> list[int]:
    """The elements of the weights that a kernel fetches, in order.

    ``caches``: the localities of the fetches are added to it.
    """
    stack: list[Any] = []
    offsets: list[int] = []
    analyzer = Analyzer()

    def loop(value: Any, visitor: Any) -> None:
        stack.append(value)
        visitor.default_visit(value)
        stack.pop()

    def statement(value: Any, _visitor: Any) -> None:
        assert "llvm.prefetch" in str(value)
        _, address, is_write, cache, is_data = value.value.args
        assert (int(is_write), int(is_data)) == (0, 1)
        if caches is not None:
            caches.add(int(cache))
        load = address.args[0]
        shape = [int(extent) for extent in load.source.shape]
        for at in product(*(range(int(each.extent)) for each in stack)):
            numbers = {each.loop_var: i for each, i in zip(stack, at, strict=True)}
            index = [int(analyzer.simplify(replaced(i, numbers))) for i in load.indices]
            offsets.append(int(np.dot(index, [shape[1] * shape[2], shape[2], 1])))

    structural_visit(mod["main"].body, [(tirx.For, loop), (tirx.Evaluate, statement)])
    return offsets


def replaced(value: Any, numbers: dict[Any, int]) -> Any:
    def number(variable: Any) -> Any:
        found = numbers.get(variable)
        return variable if found is None else tirx.const(found, str(variable.ty.dtype))

    return structural_map(value, (tirx.Var, number))


def test_each_line_after_the_first_panel_is_fetched_once_or_so() -> None:
    offsets = fetched_offsets(PrefetchWeights()(product_of_panels()))
    lines = [offset * 4 // 64 for offset in offsets]
    panel = WEIGHT_LINES // PANELS
    assert set(range(panel, WEIGHT_LINES)) <= set(lines)
    assert len(lines) <= 1.1 * WEIGHT_LINES
    assert all(offset % 16 == 0 for offset in offsets)


@pytest.mark.parametrize("walks", [1, 2, 3])
def test_tiles_are_fetched_into_the_second_cache_and_vectors_into_the_first(walks: int) -> None:
    """LLVM's localities: 3 is L1 and 2 is L2. A panel has 16 kB, as much as a stream is ahead."""
    caches: set[int] = set()
    offsets = fetched_offsets(PrefetchWeights()(product_of_tiles(walks)), caches)
    assert caches == {2}
    assert set(range(4096, 16 * 4096, 16)) <= set(offsets)
    assert len(offsets) <= 1.1 * 16 * 4096 / 16
    caches.clear()
    fetched_offsets(PrefetchWeights()(product_of_panels()), caches)
    assert caches == {3}


def test_rows_of_weights_that_are_not_packed_are_no_tile() -> None:
    """A block reads 16 rows of 64 bytes, which are 1 kB apart."""
    a, w = te.placeholder((4, 512), name="A"), te.placeholder((512, 256), name="W")
    k = te.reduce_axis((0, 512), name="k")
    c = te.compute((4, 256), lambda i, j: te.sum(a[i, k] * w[k, j], axis=[k]), name="C")
    function = te.create_prim_func([a, w, c]).with_attr("layout_free_buffers", [1])
    schedule = Schedule(IRModule({"main": function}))
    i, j, k = schedule.get_loops(schedule.get_sblock("C"))
    panel, lane = schedule.split(j, [None, 16])
    tile, step = schedule.split(k, [None, 16])
    schedule.reorder(panel, i, tile, step, lane)
    schedule.blockize(step)
    assert PrefetchWeights()(schedule.mod)["main"].same_as(schedule.mod["main"])


def check_product(mod: IRModule) -> None:
    """Build a product with prefetches, and compare its outputs with NumPy's."""
    module = build_scheduled(mod, Target({"kind": "llvm", "num-cores": 2}))
    rng = np.random.default_rng(0)
    a = rng.standard_normal((ROWS, DEPTH), dtype="float32")
    w = rng.standard_normal((PANELS, DEPTH, COLUMNS), dtype="float32")
    c = np.zeros((ROWS, PANELS * COLUMNS), "float32")
    tensors = [tvm.runtime.tensor(array) for array in (a, w, c)]
    module["main"](*tensors)
    expected = a @ w.transpose(1, 0, 2).reshape(DEPTH, -1)
    np.testing.assert_allclose(tensors[2].numpy(), expected, rtol=1e-4, atol=1e-4)
    assert "prefetch" in module.inspect_source("ll")


def test_outputs_are_those_of_numpy_and_the_code_has_prefetches() -> None:
    check_product(product_of_panels())


@pytest.mark.parametrize(
    "mod",
    [
        pytest.param(product_of_panels(marked=False), id="no weights"),
        pytest.param(product_of_panels(depth=LEAST_BYTES // 4 // 4 // 64 - 4), id="small weights"),
    ],
)
def test_other_kernels_stay_as_they_are(mod: IRModule) -> None:
    assert PrefetchWeights()(mod)["main"].same_as(mod["main"])


def test_what_packs_weights_marks_them() -> None:
    """As ``RewriteLayout`` leaves a candidate: a block packs the weights for the product."""
    schedule = Schedule(product_of_panels(marked=False))
    packed = schedule.cache_read(schedule.get_sblock("C_update"), 2, "global")
    schedule.annotate(packed, "meta_schedule.layout_rewrite_preproc", 1)
    offsets = fetched_offsets(PrefetchWeights()(schedule.mod))
    assert max(offsets) > DEPTH * COLUMNS
    # The block that packs is left out of a candidate.
    check_product(schedule.mod)


def test_panels_and_rows_may_be_fused_to_a_parallel_loop() -> None:
    mod = product_of_panels(fused=True)
    lines = [offset * 4 // 64 for offset in fetched_offsets(PrefetchWeights()(mod))]
    assert set(range(WEIGHT_LINES // PANELS, WEIGHT_LINES)) <= set(lines)
    check_product(mod)


def looked_up(rows: int) -> Any:
    """Rows of a table of 1024 by 128, by their numbers."""
    table = te.placeholder((1024, 128), name="table")
    numbers = te.placeholder((rows,), "int32", name="numbers")
    out = te.compute((rows, 128), lambda i, j: table[numbers[i], j], name="out")
    return [table, numbers, out], 0


def summed_rows(rows: int) -> Any:
    """Sums of rows that are looked up: the loops do not say where they lie."""
    table = te.placeholder((1024, 128), name="table")
    numbers = te.placeholder((rows, 16), "int32", name="numbers")
    k = te.reduce_axis((0, 16), name="k")
    out = te.compute((rows, 128), lambda i, j: te.sum(table[numbers[i, k], j], axis=[k]))
    return [table, numbers, out], 0


def dense(rows: int) -> Any:
    """A product as it is before it is scheduled."""
    a = te.placeholder((rows, 512), name="a")
    w = te.placeholder((512, 512), name="w")
    k = te.reduce_axis((0, 512), name="k")
    out = te.compute((rows, 512), lambda i, j: te.sum(a[i, k] * w[k, j], axis=[k]), name="out")
    return [a, w, out], 1


@pytest.mark.parametrize("kernel", [looked_up(4), summed_rows(4), dense(8), dense(0)])
def test_what_no_loop_walks_through_in_order_stays_as_it_is(kernel: Any) -> None:
    tensors, weights = kernel
    function = te.create_prim_func(tensors).with_attr("layout_free_buffers", [weights])
    mod = IRModule({"main": function})
    assert PrefetchWeights()(mod)["main"].same_as(mod["main"])
