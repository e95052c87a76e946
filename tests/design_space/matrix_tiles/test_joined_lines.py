# SPDX-License-Identifier: Apache-2.0
"""Small maps whose rows are one axis: what they compute, and where the tiles have their rows."""

import math

import numpy as np
import pytest
import tiles_stand_in
from matrix_kernels import (
    BYTES,
    HALVES,
    Case,
    convolution_case,
    convolved,
    exact,
    sums_of,
    values,
)
from tile_schedules import found_in, needs_tiles, results_on_the_cpu, scheduled, spaces_of
from tiles_stand_in import TILES

import tvm
from tvm import relax, te, tirx
from tvm_droplet_ms.design_space.matrix_tiles.tile_shapes import (
    joined_lines,
    map_cycles,
    named_kinds,
)
from tvm_droplet_ms.model.kernels.halves import flat_convolution
from tvm_droplet_ms.model.kernels.lowering_passes import legalize_map
from tvm_droplet_ms.tuning.kernel.kernel_run import module_of

ONE, PADS = (1, 1), (1, 1, 1, 1)


def joined_case(images, weights, types, geometry, computed, finish=None):
    """A convolution with joined lines; ``finish``: its consumers, in TE and in NumPy."""
    a, w = te.placeholder(images, types[0], "a"), te.placeholder(weights, types[1], "w")
    c = flat_convolution(a, w, *geometry, computed)
    shapes, kinds, arguments = [images, weights], list(types), [a, w]
    dtype, result, follow = str(c.dtype), c, lambda sums, *others: sums
    if finish is not None:
        others, result, follow = finish(c)
        arguments += others
        shapes += [tuple(map(int, each.shape)) for each in others]
        kinds += [str(each.dtype) for each in others]
        dtype = str(result.dtype)
    return Case(
        f"{images} by {weights} {types} {geometry} {getattr(finish, '__name__', '')}",
        module_of(te.create_prim_func([*arguments, result])),
        shapes,
        kinds,
        lambda a, w, *others: follow(convolved(a, w, *geometry), *others),
        dtype,
    )


def added_and_cut(c):
    """A residual addition and ReLU."""
    other = te.placeholder(c.shape, "int8", "other")
    total = te.compute(c.shape, lambda *at: c(*at) + other(*at).astype(c.dtype), "total")
    cut = te.compute(c.shape, lambda *at: te.max(total(*at), tirx.const(0, c.dtype)), "cut")
    return [other], cut, lambda sums, other: np.maximum(sums + other, 0)


def requantized(c):
    def byte(*at):
        scaled = te.round(c(*at).astype("float32") * tirx.const(2.0**-7, "float32"))
        return te.max(te.min(scaled, 255.0), 0.0).astype("uint8")

    byte_of = te.compute(c.shape, byte, "byte")
    return [], byte_of, lambda sums: np.clip(np.rint(sums / 128), 0, 255)


@pytest.mark.parametrize(
    ("size", "kernel", "geometry", "extra", "types"),
    [
        ((7, 7), (3, 3), (ONE, PADS, ONE), 1, BYTES),
        ((5, 9), (1, 1), (ONE, (0, 0, 0, 0), ONE), 0, HALVES),
        ((9, 5), (3, 2), ((2, 1), (0, 1, 2, 0), ONE), 2, ("int8", "uint8")),
        ((8, 8), (3, 3), ((2, 3), (1, 2, 0, 1), (2, 1)), 0, ("int8", "int8")),
        ((9, 11), (2, 5), ((3, 2), (3, 0, 1, 2), (1, 2)), 1, ("uint8", "uint8")),
        ((6, 6), (1, 1), ((2, 2), (0, 0, 0, 0), ONE), 0, HALVES),
        ((6, 1), (4, 3), (ONE, (1, 1, 2, 1), ONE), 0, BYTES),
    ],
)
def test_a_joined_convolution_is_a_convolution(size, kernel, geometry, extra, types):
    images, weights = (2, *size, 4), (*kernel, 4, 8)
    lines = (size[0] + geometry[1][0] + geometry[1][2] - (kernel[0] - 1) * geometry[2][0] - 1) // (
        geometry[0][0]
    ) + 1
    case = joined_case(images, weights, types, geometry, lines + extra)
    arrays = case.arrays()
    expected = case.expected(*arrays)
    out = tvm.runtime.empty(expected.shape, case.dtype)
    tvm.tirx.build(case.module, target="llvm")["main"](*map(tvm.runtime.tensor, arrays), out)
    np.testing.assert_array_equal(out.numpy(), expected)


CASES = [
    joined_case((1, 7, 7, 64), (3, 3, 64, 32), BYTES, (ONE, PADS, ONE), 8, added_and_cut),
    joined_case((1, 7, 7, 64), (1, 1, 64, 32), BYTES, (ONE, (0,) * 4, ONE), 8, requantized),
    joined_case((2, 14, 14, 32), (3, 3, 32, 48), HALVES, ((2, 2), PADS, ONE), 8, added_and_cut),
    joined_case((1, 6, 6, 32), (1, 1, 32, 40), HALVES, (ONE, (0,) * 4, ONE), 6),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_tiles_have_rows_of_several_lines(case):
    found = found_in(case)
    assert (found.line, found.row, found.is_joinable) == (1, 2, True)
    arrays = case.arrays()
    expected = case.expected(*arrays)
    for module in scheduled(case.module):
        result, products = tiles_stand_in.run(module, arrays, expected.shape, case.dtype)
        assert products > 0
        np.testing.assert_array_equal(result, expected)
    _, spaces = spaces_of(case.module)
    kinds = [kind for each in spaces for _, _, kind in named_kinds(str(each.trace))]
    # A line has fewer rows.
    assert max(kind.tile.rows for kind in kinds) > expected.shape[2] + 2


@pytest.mark.parametrize(("size", "is_found"), [((3, 3), True), ((2, 2), True), ((3, 1), False)])
def test_short_lines_have_a_product_together(size, is_found):
    """Tiles have at least four rows."""
    case = joined_case((1, *size, 64), (1, 1, 64, 32), BYTES, (ONE, (0,) * 4, ONE), size[0])
    found = found_in(case)
    assert (found is not None and found.is_joinable) == is_found
    assert found_in(convolution_case((3, 3), 64, 32, 1, BYTES)) is None


@needs_tiles
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("cores", [1, 2])
def test_joined_lines_on_the_cpu(case, cores):
    expected, results = results_on_the_cpu(case, cores)
    assert results
    for result in results:
        np.testing.assert_array_equal(result, expected)


def test_an_output_keeps_its_shape():
    """The lines of sums that are the kernel's output stay apart."""
    a, w = te.placeholder((1, 49, 64), "uint8", "a"), te.placeholder((64, 32), "int8", "w")
    k = te.reduce_axis((0, 64), "k")

    def product(n, y, x, output):
        return te.sum(a[n, y * 7 + x, k].astype("int32") * w[k, output].astype("int32"), k)

    c = te.compute((1, 7, 7, 32), product, "c")

    def expected(a, w):
        return (exact(a) @ exact(w)).reshape(1, 7, 7, 32)

    module = module_of(te.create_prim_func([a, w, c]))
    case = Case("output", module, [(1, 49, 64), (64, 32)], list(BYTES), expected)
    assert found_in(case).is_joinable
    arrays = case.arrays()
    for each in scheduled(case.module):
        result, products = tiles_stand_in.run(each, arrays, (1, 7, 7, 32), "int32")
        assert products > 0
        np.testing.assert_array_equal(result, case.expected(*arrays))


@pytest.mark.parametrize("kernel", [1, 3])
def test_lines_of_a_map_apart_are_not_joinable(kernel):
    found = found_in(convolution_case((7, 7), 32, 32, kernel, HALVES, computed=(8, 7)))
    assert found.line == 1 and not found.is_joinable


def test_lines_that_overlap_are_not_joinable():
    """Each line begins six rows after the one before it, and has seven."""
    a, w = te.placeholder((64, 64), "uint8", "a"), te.placeholder((64, 32), "int8", "w")
    k = te.reduce_axis((0, 64), "k")

    def product(y, x, output):
        return te.sum(a[y * 6 + x, k].astype("int32") * w[k, output].astype("int32"), k)

    module = module_of(te.create_prim_func([a, w, te.compute((8, 7, 32), product, "c")]))
    found = found_in(Case("overlapping", module, [], [], None))
    assert found.line == 0 and not found.is_joinable


@pytest.mark.parametrize(("size", "is_joined"), [((7, 7), True), ((14, 14), False)])
@pytest.mark.parametrize("types", [BYTES, HALVES])
def test_models_join_the_lines_of_small_maps(size, is_joined, types):
    shapes = (1, *size, 64), (1, 1, 64, 64)
    x, w = (
        relax.Var(name, relax.TensorType(shape, dtype))
        for name, shape, dtype in zip("xw", shapes, types, strict=True)
    )
    builder = relax.BlockBuilder()
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO", "out_dtype": sums_of(types[0])}
    with builder.function("main", [x, w]):
        result = builder.emit(relax.op.nn.conv2d(x, w, **layouts))
        builder.emit_func_output(result)
    with TILES:
        legal = relax.transform.LegalizeOps(legalize_map())(builder.get())
    kernels = [each for name, each in legal.functions_items() if name.name_hint != "main"]
    case = Case("model", module_of(kernels[0].without_attr("global_symbol")), [], [], None)
    assert found_in(case).is_joinable == is_joined
    generator = np.random.default_rng(0)
    arrays = [values(generator, *each) for each in zip(shapes, types, strict=True)]
    machine = relax.VirtualMachine(tvm.compile(legal, "llvm"), tvm.cpu())
    out = machine["main"](*map(tvm.runtime.tensor, arrays)).numpy()
    np.testing.assert_array_equal(out, convolved(*arrays, ONE, (0,) * 4, ONE))


def test_the_cycles_of_a_map_by_hand():
    """From L2: a step of two by two tiles loads two tiles of 14 rows and two of columns."""
    step, store = 2 * (14 + 1) + 2 * 21, 4 * 40 * 14 / 16
    assert map_cycles(56, 1, 32, 16, 32, 144) == pytest.approx(
        56 * (144 * step + store) / (4 * 14 * 16)
    )
    # Lines apart: four tiles of seven rows for each tile of columns.
    step, store = 4 * (7 + 1) + 21, 4 * 40 * 7 / 16
    assert map_cycles(7, 8, 32, 16, 32, 144) == pytest.approx(
        56 * (144 * step + store) / (4 * 7 * 16)
    )
    # From L1: one tile of 16 rows, one of columns.
    assert map_cycles(16, 1, 1, 16, 32, 1) == pytest.approx((2 * 17 + 40) / 16)
    assert map_cycles(2, 1, 1, 16, 32, 1) == math.inf


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        # Seven lines of seven rows are 49; eight are four tiles of 14 rows.
        ((7, 7, 7), 8),
        # With two dropped rows in each line, eight are six tiles of 12 rows.
        ((7, 7, 9), 8),
        # A line fills a tile.
        ((16, 4, 18), 0),
        # More than 128 rows.
        ((7, 7, 20), 0),
        ((14, 14, 14), 0),
        # Nine rows are one tile, though lines of three are too short for tiles of their own.
        ((3, 3, 3), 3),
        # What has no lines, or too few rows.
        ((9, 1, 11), 0),
        ((1, 1, 1), 0),
        ((1, 3, 1), 0),
    ],
)
def test_lines_are_joined_if_that_is_faster(arguments, lines):
    assert joined_lines(*arguments, 32, 16, 32, 144) == lines
