# SPDX-License-Identifier: Apache-2.0
"""Transposed convolutions by blocks of pixels: compared with PyTorch's definition, in NumPy."""

import numpy as np
import pytest
from graphs import build

import tvm
from tvm import relax
from tvm_droplet_ms.model.bindings import operator_name, values_of
from tvm_droplet_ms.model.prepare import prepare_graph
from tvm_droplet_ms.model.transposed_convolution import TRANSPOSED, split_transposed

CASES = [
    # input, outputs, kernel, stride, padding, output padding
    ((1, 3, 5, 6), 4, (2, 2), (2, 2), (0, 0), (0, 0)),
    ((2, 3, 5, 4), 2, (4, 4), (2, 2), (1, 1), (0, 0)),
    ((1, 2, 4, 4), 3, (3, 3), (2, 2), (1, 1), (1, 1)),
    ((1, 2, 4, 5), 3, (3, 3), (2, 2), (0, 0), (0, 0)),
    ((1, 2, 4, 5), 3, (5, 2), (3, 1), (2, 0), (1, 0)),
    ((1, 2, 3, 3), 1, (1, 1), (2, 2), (0, 0), (0, 0)),
]


def model(weights, shape, stride, padding, output_padding):
    options = {"strides": stride, "padding": (*padding, *padding), "output_padding": output_padding}

    def body(emit, data):
        out = emit(relax.op.nn.conv2d_transpose(data, relax.const(weights), **options))
        return emit(relax.op.nn.relu(out))

    return build(shape, body)


def by_definition(data, weights, stride, padding, output_padding):
    """Each pixel of the input adds the kernel, times its value, to the output."""
    count, inputs, height, width = data.shape
    _, outputs, high, wide = weights.shape
    rows = (height - 1) * stride[0] + high + output_padding[0]
    columns = (width - 1) * stride[1] + wide + output_padding[1]
    full = np.zeros((count, outputs, rows, columns))
    for h in range(height):
        for w in range(width):
            part = np.einsum("ni,iokl->nokl", data[:, :, h, w], weights)
            top, left = h * stride[0], w * stride[1]
            full[:, :, top : top + high, left : left + wide] += part
    full = full[:, :, padding[0] : rows - padding[0], padding[1] : columns - padding[1]]
    return np.maximum(full, 0)


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
    assert TRANSPOSED not in names(mod)
    expected = by_definition(data, weights, stride, padding, output_padding)
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
    assert TRANSPOSED not in names(mod)
    found, expected = run(mod, x), by_definition(x, weights, (2, 2), (0, 0), (0, 0))
    assert found.dtype == "float32"
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "output_padding"),
    [(3, 1, 1, 0), (2, 2, 0, 1)],
    ids=["a stride of 1", "pixels beyond the last block"],
)
def test_others_stay(kernel, stride, padding, output_padding):
    weights = np.ones((2, 3, kernel, kernel), "float32")
    mod = model(weights, (1, 2, 4, 4), (stride,) * 2, (padding,) * 2, (output_padding,) * 2)
    assert names(split_transposed()(mod)) == names(mod)


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
