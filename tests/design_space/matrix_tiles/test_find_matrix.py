# SPDX-License-Identifier: Apache-2.0
"""The axes that tiles go along, as one reads them in the loops."""

import pytest
from matrix_kernels import Case, convolution_case, dense_case, matmul_case
from tile_schedules import found_in
from tiles_stand_in import TILES

from tvm import te
from tvm.target import Target
from tvm_droplet_ms.design_space.matrix_tiles.find_matrix import (
    matrix_units,
    product_geometry,
)
from tvm_droplet_ms.tuning.kernel.kernel_run import module_of

BYTES, HALVES = ("uint8", "int8"), ("bfloat16", "bfloat16")


def test_the_target_says_what_is_multiplied():
    assert [unit.dtypes for unit in matrix_units(TILES)] == [("int8", "uint8"), ("bfloat16",)]
    bytes_alone = Target({**TILES.export(), "mattr": ["-amx-bf16"]})
    assert [unit.dtypes for unit in matrix_units(bytes_alone)] == [("int8", "uint8")]
    assert not matrix_units(Target({**TILES.export(), "mattr": ["-amx-tile"]}))
    assert not matrix_units(Target({"kind": "llvm", "mcpu": "cascadelake"}))


@pytest.mark.parametrize(("depth", "length"), [(128, 64), (96, 48), (36, 36), (160, 40)])
def test_a_product(depth, length):
    found = found_in(dense_case(*BYTES, depth=depth))
    assert (found.row, found.line, found.stride, found.pitch, found.middle) == (0, None, 1, 0, 0)
    assert (found.depth, found.reads) == (length, [0, 2])


@pytest.mark.parametrize("stride", [1, 2])
def test_a_convolution(stride):
    """Axes: batch, line, pixel, output, tap's line, tap, input."""
    found = found_in(convolution_case((14, 14), 64, 32, 3, HALVES, stride=stride))
    assert (found.row, found.line, found.stride) == (2, 1, stride)
    assert (found.depth, found.reads) == (32, [0, 1, 2, 4, 5, 6])


def test_rows_of_a_sequence():
    found = found_in(matmul_case((32, 1, 64), 32, *HALVES))
    assert (found.row, found.line, found.middle) == (0, None, 1)


@pytest.mark.parametrize(
    "case",
    [
        dense_case(*BYTES, rows=1),
        dense_case(*BYTES, depth=12),
        dense_case(*BYTES, columns=7),
        convolution_case((28, 28), 4, 32, 3, BYTES),
    ],
    ids=str,
)
def test_what_fills_no_tile_is_not_found(case):
    assert found_in(case) is None


@pytest.mark.parametrize(
    "place", [lambda k, j: (k, j + 16), lambda k, j: (64 + k, j), lambda k, j: (k, 63 - j)]
)
def test_slices_of_weights_are_not_found(place):
    """The tile of a slice would be taken for that of another panel."""
    a, w = te.placeholder((32, 64), "uint8", "a"), te.placeholder((128, 64), "int8", "w")
    k = te.reduce_axis((0, 64), "k")
    c = te.compute(
        (32, 48),
        lambda i, j: te.sum(a[i, k].astype("int32") * w[place(k, j)].astype("int32"), k),
        "c",
    )
    module = module_of(te.create_prim_func([a, w, c]))
    assert found_in(Case("slice", module, [], [], None)) is None


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("bfloat16", 64, 128, 9), (8, 16, 32, 18)),
        (("uint8", 96, 24), (2, 12, 48, 2)),
        (("bfloat16", 3, 64), None),
        (("float32", 64, 64), None),
        (("int8", 64, 7), None),
    ],
)
def test_geometry(arguments, expected):
    assert product_geometry(TILES, *arguments) == expected
