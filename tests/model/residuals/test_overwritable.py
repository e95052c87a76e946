"""Kernels whose result may be written over an operand, against NumPy."""

import numpy as np
import pytest

import tvm
from tvm import te
from tvm.s_tir import Schedule
from tvm.script import tirx as T
from tvm_droplet_ms.model.residuals import overwritable, overwriting

ROWS, COLUMNS, DEPTH = 6, 20, 8
SHAPES = [(ROWS, DEPTH), (DEPTH, COLUMNS), (ROWS, COLUMNS)]


def product(read=lambda r, i, j: r[i, j], dtype="float32"):
    """A matrix product and a third operand, as ``read`` reads it."""
    one, other = (te.placeholder(shape, name=name) for shape, name in zip(SHAPES, "ab"))
    last = te.placeholder(SHAPES[2], dtype, name="r")
    k = te.reduce_axis((0, DEPTH), "k")
    shape = SHAPES[2]
    total = te.compute(shape, lambda i, j: te.sum(one[i, k] * other[k, j], k), name="total")
    result = te.compute(
        shape, lambda i, j: total[i, j] + read(last, i, j).astype("float32"), name="result"
    )
    return te.create_prim_func([one, other, last, result])


def scheduled(split=4, fuse=False):
    """The product with its sums inside the loops of the result."""
    schedule = Schedule(product())
    loops = schedule.get_loops("result")
    outer, inner = schedule.split(loops[1], [None, split])
    schedule.reorder(outer, loops[0], inner)
    at = schedule.fuse(outer, loops[0]) if fuse else loops[0]
    schedule.compute_at("total", at)
    schedule.vectorize(schedule.get_loops("result")[-1])
    return schedule.mod["main"]


def run(kernel, over):
    """The result of a kernel that writes over an operand, and NumPy's."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype("float32") for shape in SHAPES]
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    changed = overwriting(kernel, over)
    library = tvm.compile(tvm.IRModule({"main": changed}), target="llvm")
    library["main"](*tensors, tensors[over])
    return tensors[over].numpy(), arrays[0] @ arrays[1] + arrays[2]


@pytest.mark.parametrize(
    "kernel",
    [
        product(),
        scheduled(),
        scheduled(fuse=True),
        scheduled(split=8),  # Does not divide: the last iterations are left out.
        product(lambda r, i, j: r[i, j] * r[i, j]),
    ],
    ids=["as it is", "split", "fused", "torn", "twice at one place"],
)
def test_the_term_that_is_added_may_be_overwritten(kernel):
    assert overwritable(kernel) == [2]


@pytest.mark.parametrize("kernel", [product(), scheduled(), scheduled(split=8)])
def test_what_overwrites_computes_the_same(kernel):
    found, expected = run(kernel, 2)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "read",
    [
        lambda r, i, j: r[ROWS - 1 - i, j],
        lambda r, i, j: r[i, j] + r[i, 0],
        lambda r, i, j: te.if_then_else(j > 0, r[i, j - 1], r[i, j]),
        lambda r, i, j: r[0, 0],
    ],
    ids=["backwards", "and the first of its row", "the one before", "one for all"],
)
def test_an_operand_read_elsewhere_is_kept(read):
    assert overwritable(product(read)) == []


def test_an_operand_of_another_type_is_kept():
    assert overwritable(product(dtype="int32")) == []


def test_an_operand_that_two_blocks_read_is_kept():
    data = te.placeholder((ROWS, COLUMNS), name="data")
    k = te.reduce_axis((0, COLUMNS), "k")
    total = te.compute((ROWS,), lambda i: te.sum(data[i, k], k), name="total")
    result = te.compute((ROWS, COLUMNS), lambda i, j: data[i, j] + total[i], name="result")
    assert overwritable(te.create_prim_func([data, result])) == []


def test_a_result_that_is_computed_twice_is_kept():
    assert overwritable(repeated(times=1)) == [0]
    assert overwritable(repeated(times=2)) == []


def test_a_loop_that_begins_elsewhere_is_left_alone():
    @T.prim_func(s_tir=True)
    def kernel(data: T.Buffer((8,), "float32"), result: T.Buffer((8,), "float32")):
        with T.sblock("root"):
            for i in T.serial(1, 9):
                with T.sblock("result"):
                    x = T.axis.spatial(8, i - 1)
                    result[x] = data[x] + T.float32(1)

    assert overwritable(kernel) == []


def repeated(times):
    """A kernel that stores each element in so many iterations of a loop."""

    @T.prim_func(s_tir=True)
    def kernel(data: T.Buffer((4, 8), "float32"), result: T.Buffer((4, 8), "float32")):
        with T.sblock("root"):
            for again, i, j in T.grid(times, 4, 8):
                with T.sblock("result"):
                    x, y = T.axis.remap("SS", [i, j])
                    result[x, y] = data[x, y] + T.float32(1)

    return kernel
