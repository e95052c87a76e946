# SPDX-License-Identifier: Apache-2.0
"""Transposed convolutions by blocks of pixels: compared with PyTorch's definition, in NumPy."""

import numpy as np
import pytest
from graphs import build

import tvm
from tvm import relax
from tvm_droplet_ms.model.bindings import operator_name, values_of
from tvm_droplet_ms.model.prepare import prepare_graph
from tvm_droplet_ms.model.rewritten_convolutions import TRANSPOSED, split_transposed

CASES = [
    # input, outputs, kernel, stride, padding, output padding
    ((1, 3, 5, 6), 4, (2, 2), (2, 2), (0, 0), (0, 0)),
    ((2, 3, 5, 4), 2, (4, 4), (2, 2), (1, 1), (0, 0)),
    ((1, 2, 4, 4), 3, (3, 3), (2, 2), (1, 1), (1, 1)),
    ((1, 2, 4, 5), 3, (3, 3), (2, 2), (0, 0), (0, 0)),
    ((1, 2, 4, 5), 3, (5, 2), (3, 1), (2, 0), (1, 0)),
    ((1, 2, 3, 3), 1, (1, 1), (2, 2), (0, 0), (0, 0)),
    ((1, 2, 4, 4), 3, (2, 2), (2, 2), (0, 0), (1, 1)),  # pixels that no tap reaches
    ((2, 3, 4, 5), 4, (3, 2), (1, 1), (1, 0), (0, 0)),
    ((1, 3, 7), 4, (16,), (8,), (4,), (0,)),
    ((1, 2, 5), 3, (5,), (3,), (2,), (2,)),
    ((2, 3, 6), 2, (3,), (1,), (1,), (0,)),
    ((1, 3, 2, 4, 3), 4, (2, 2, 2), (2, 2, 2), (0, 0, 0), (0, 0, 0)),
    ((1, 2, 3, 4, 3), 3, (3, 1, 4), (2, 1, 2), (1, 0, 1), (1, 0, 0)),
]


def model(weights, shape, stride, padding, output_padding, groups=1):
    operators = (
        relax.op.nn.conv1d_transpose,
        relax.op.nn.conv2d_transpose,
        relax.op.nn.conv3d_transpose,
    )
    options = {"strides": stride, "padding": (*padding, *padding), "output_padding": output_padding}
    options["groups"] = groups

    def body(emit, data):
        out = emit(operators[len(shape) - 3](data, relax.const(weights), **options))
        return emit(relax.op.nn.relu(out))

    return build(shape, body)


def by_definition(data, weights, stride, padding, output_padding):
    """Each pixel of the input adds the kernel, times its value, to the output."""
    count, inputs, *extents = data.shape
    outputs, sizes = weights.shape[1], weights.shape[2:]
    axes = list(zip(extents, sizes, stride, padding, output_padding, strict=True))
    full = np.zeros((count, outputs, *((n - 1) * s + k + more for n, k, s, _, more in axes)))
    for place in np.ndindex(*extents):
        part = np.tensordot(data[(slice(None), slice(None), *place)], weights, 1)
        begin = [index * step for index, step in zip(place, stride, strict=True)]
        window = [slice(start, start + k) for start, k in zip(begin, sizes, strict=True)]
        full[(slice(None), slice(None), *window)] += part
    kept = [slice(p, n - p) for p, n in zip(padding, full.shape[2:], strict=True)]
    return np.maximum(full[(slice(None), slice(None), *kept)], 0)


def run(mod, data):
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    return machine["main"](tvm.runtime.tensor(data)).numpy()


def names(mod):
    return [operator_name(value) for value in values_of(mod["main"])]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("make_pass", [split_transposed, prepare_graph])
def test_blocks_compute_the_transposed_convolution(case, make_pass):
    shape, outputs, kernel, stride, padding, output_padding = case
    generator = np.random.default_rng(0)
    data = generator.normal(size=shape).astype("float32")
    weights = generator.normal(size=(shape[1], outputs, *kernel)).astype("float32")
    mod = make_pass()(model(weights, shape, stride, padding, output_padding))
    assert not any(name in TRANSPOSED for name in names(mod))
    expected = by_definition(data, weights, stride, padding, output_padding)
    np.testing.assert_allclose(run(mod, data), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("groups", [2, 3])
def test_blocks_of_groups(case, groups):
    """Each group of channels is a transposed convolution of its own."""
    shape, outputs, kernel, *rest = case
    generator = np.random.default_rng(0)
    data = generator.normal(size=(shape[0], groups * shape[1], *shape[2:])).astype("float32")
    weights = generator.normal(size=(groups * shape[1], outputs, *kernel)).astype("float32")
    mod = split_transposed()(model(weights, data.shape, *rest, groups))
    assert not any(name in TRANSPOSED for name in names(mod))
    pairs = zip(np.split(data, groups, 1), np.split(weights, groups), strict=True)
    expected = np.concatenate([by_definition(x, w, *rest) for x, w in pairs], 1)
    np.testing.assert_allclose(run(mod, data), expected, rtol=1e-5, atol=1e-5)


def test_halves_are_summed_in_the_type_that_is_asked_for():
    generator = np.random.default_rng(2)
    x = generator.normal(size=(1, 3, 4, 4)).astype("float16")
    weights = generator.normal(size=(3, 4, 2, 2)).astype("float16")

    def body(emit, data):
        options = {"strides": 2, "out_dtype": "float32"}
        out = emit(relax.op.nn.conv2d_transpose(data, relax.const(weights), **options))
        return emit(relax.op.nn.relu(out))

    mod = split_transposed()(build(x.shape, body, dtype="float16"))
    assert not any(name in TRANSPOSED for name in names(mod))
    found, expected = run(mod, x), by_definition(x, weights, (2, 2), (0, 0), (0, 0))
    assert found.dtype == "float32"
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def test_padding_that_takes_blocks_away_stays():
    weights = np.ones((2, 3, 2, 2), "float32")
    mod = model(weights, (1, 2, 4, 4), (2, 2), (2, 2), (0, 0))
    assert names(split_transposed()(mod)) == names(mod)


@pytest.mark.parametrize(
    ("shape", "padding", "expected"),
    [
        ((0, 2, 4, 5), (0, 0), (0, 3, 8, 10)),
        ((1, 2, 0, 5), (0, 0), (1, 3, 0, 10)),
        ((1, 2, 1, 5), (1, 0), (1, 3, 0, 10)),
    ],
)
def test_what_has_no_elements_stays(shape, padding, expected):
    mod = model(np.ones((2, 3, 2, 2), "float32"), shape, (2, 2), padding, (0, 0))
    assert names(split_transposed()(mod)) == names(mod)
    assert tuple(map(int, prepare_graph()(mod)["main"].ret_ty.shape)) == expected


def test_a_stride_of_one_is_a_convolution_alone():
    weights = np.ones((2, 3, 3, 3), "float32")
    mod = split_transposed()(model(weights, (1, 2, 4, 4), (1, 1), (1, 1), (0, 0)))
    assert [name for name in names(mod) if name] == ["relax.nn.conv2d", "relax.nn.relu"]


def test_no_transposes_stay_between_convolutions():
    """In NHWC before and after it, only the permutation of the blocks is left."""
    generator = np.random.default_rng(1)
    first, last = (
        relax.const(generator.normal(size=(8, count, 3, 3)).astype("float32")) for count in (4, 8)
    )
    up = relax.const(generator.normal(size=(8, 8, 2, 2)).astype("float32"))

    def body(emit, data):
        out = emit(relax.op.nn.conv2d(data, first, padding=1))
        out = emit(relax.op.nn.relu(emit(relax.op.nn.conv2d_transpose(out, up, strides=2))))
        return emit(relax.op.nn.conv2d(out, last, padding=1))

    prepared = prepare_graph()(build((1, 4, 6, 6), body))
    # The input's, the blocks' and the output's.
    assert names(prepared).count("relax.permute_dims") == 3
