# SPDX-License-Identifier: Apache-2.0
"""Layers of bfloat16 compute what NumPy does of rounded numbers, and others stay as they are."""

import ml_dtypes
import numpy as np
import pytest

import tvm
from tvm import relax
from tvm_droplet_ms.model.bindings import operator_name, values_of
from tvm_droplet_ms.model.half_products import compute_in_bfloat16
from tvm_droplet_ms.model.kernels.lowering_passes import legalize_map, lowering_passes
from tvm_droplet_ms.model.shared_constants import share_constants


def constant(generator, *shape):
    return relax.const(generator.standard_normal(shape).astype("float32"))


def module(make, shape):
    """A module of what `make` emits of an input of a shape."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(make(builder, x))
        builder.emit_func_output(result)
    return builder.get()


def run(mod, x, legalize=None):
    executable = tvm.compile(relax.transform.LegalizeOps(legalize)(mod), "llvm")
    return relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()


def types(mod):
    """The types of the operands of each product."""
    return [
        tuple(str(each.ty.dtype) for each in value.args[:2])
        for value in values_of(mod["main"])
        if operator_name(value) in ("relax.matmul", "relax.nn.conv2d")
    ]


def rounded(array):
    return array.astype(ml_dtypes.bfloat16).astype("float64")


HALVES, SINGLES = ("bfloat16", "bfloat16"), ("float32", "float32")


def test_dense_layer():
    generator = np.random.default_rng(0)
    weight, x = (generator.standard_normal(shape).astype("f4") for shape in ((32, 16), (5, 32)))
    mod = module(lambda b, v: b.emit(relax.op.matmul(v, relax.const(weight))), x.shape)
    half = compute_in_bfloat16()(mod)
    assert types(half) == [HALVES]
    found = run(half, x)
    np.testing.assert_allclose(found, rounded(x) @ rounded(weight), rtol=1e-5, atol=1e-5)
    # The difference from float32 is that of the rounding: a test of float32 would fail.
    assert 1e-3 < np.abs(found - x @ weight).max() < 1e-1


def test_convolution():
    generator = np.random.default_rng(0)
    x = generator.standard_normal((1, 6, 6, 8)).astype("f4")
    weight = generator.standard_normal((3, 3, 8, 4)).astype("f4")

    def make(builder, data):
        return builder.emit(
            relax.op.nn.conv2d(
                data, relax.const(weight), padding=1, data_layout="NHWC", kernel_layout="HWIO"
            )
        )

    half = compute_in_bfloat16()(module(make, x.shape))
    assert types(half) == [HALVES]
    padded = np.pad(rounded(x), ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    expected = np.einsum("nyxcij,ijco->nyxo", windows, rounded(weight))
    for legalize in (None, legalize_map()):
        np.testing.assert_allclose(run(half, x, legalize), expected, rtol=1e-5, atol=1e-5)


def test_an_input_of_two_layers_is_rounded_once():
    generator = np.random.default_rng(0)

    def make(builder, x):
        return builder.emit(
            relax.op.add(
                builder.emit(relax.op.matmul(x, constant(generator, 32, 16))),
                builder.emit(relax.op.matmul(x, constant(generator, 32, 16))),
            )
        )

    half = compute_in_bfloat16()(module(make, (4, 32)))
    assert types(half) == [HALVES, HALVES]
    names = [operator_name(value) for value in values_of(half["main"])]
    assert names.count("relax.astype") == 1


@pytest.mark.parametrize(
    ("shape", "weight", "layouts"),
    [
        ((4, 33), (33, 16), None),
        ((4, 32), (32, 6), None),
        ((4, 8), (8, 16), None),
        ((1, 6, 6, 3), (3, 3, 3, 8), {"data_layout": "NHWC", "kernel_layout": "HWIO"}),
        ((1, 8, 6, 6), (4, 8, 3, 3), {}),
        ((1, 6, 6, 8), (3, 3, 1, 8), {"data_layout": "NHWC", "kernel_layout": "HWIO", "groups": 8}),
    ],
    ids=["odd inputs", "six outputs", "few products", "image", "NCHW", "depthwise"],
)
def test_other_layers_stay(shape, weight, layouts):
    generator = np.random.default_rng(0)

    def make(builder, x):
        w = constant(generator, *weight)
        call = relax.op.matmul(x, w) if layouts is None else relax.op.nn.conv2d(x, w, **layouts)
        return builder.emit(call)

    mod = module(make, shape)
    assert types(compute_in_bfloat16()(mod)) == [SINGLES]


def test_products_of_two_activations_stay():
    mod = module(lambda b, x: b.emit(relax.op.matmul(x, x)), (32, 32))
    assert types(compute_in_bfloat16()(mod)) == [SINGLES]


def test_rows_that_no_tile_divides():
    """19 rows are computed as 20, of which the last is a copy."""
    generator = np.random.default_rng(0)
    weight, x = (generator.standard_normal(shape).astype("f4") for shape in ((32, 16), (2, 19, 32)))
    mod = module(lambda b, v: b.emit(relax.op.matmul(v, relax.const(weight))), x.shape)
    half = compute_in_bfloat16()(mod)
    legal = relax.transform.LegalizeOps(legalize_map())(half)
    assert "T.int64(20)" in legal.script()
    expected = rounded(x) @ rounded(weight)
    np.testing.assert_allclose(run(half, x, legalize_map()), expected, rtol=1e-5, atol=1e-5)


def test_residuals_read_what_was_rounded_and_choices_do_not():
    generator = np.random.default_rng(0)

    def make(builder, x):
        hidden = builder.emit(relax.op.nn.relu(x))
        product = builder.emit(relax.op.matmul(hidden, constant(generator, 32, 32)))
        total = builder.emit(relax.op.add(hidden, product))
        return builder.emit(relax.op.maximum(builder.emit(relax.op.floor(hidden)), total))

    values = values_of(compute_in_bfloat16()(module(make, (4, 32)))["main"])
    by_name = {operator_name(value): value for value in values}
    hidden = by_name["relax.floor"].args[0]
    # The last rounding is the one that widens what was rounded.
    widened = by_name["relax.astype"]
    assert str(widened.ty.dtype) == "float32"
    assert not by_name["relax.add"].args[0].same_as(hidden)
    assert not widened.args[0].same_as(hidden)


def test_a_weight_of_several_layers_is_rounded_once():
    generator = np.random.default_rng(0)

    def make(builder, x):
        weight = constant(generator, 32, 32)
        for _ in range(3):
            x = builder.emit(relax.op.tanh(builder.emit(relax.op.matmul(x, weight))))
        return x

    half = compute_in_bfloat16()(module(make, (4, 32)))
    assert types(half) == 3 * [HALVES]
    weights = {v.args[1] for v in values_of(half["main"]) if operator_name(v) == "relax.matmul"}
    assert len(weights) == 1


def test_equal_weights_of_halves_are_shared():
    values = np.random.default_rng(0).standard_normal((32, 32)).astype("float32")

    def make(builder, x):
        for _ in range(2):
            x = builder.emit(relax.op.matmul(x, relax.const(values.copy())))
        return x

    half = share_constants()(compute_in_bfloat16()(module(make, (4, 32))))
    weights = {v.args[1] for v in values_of(half["main"]) if operator_name(v) == "relax.matmul"}
    assert len(weights) == 1


@pytest.mark.parametrize("rows", [19, 20])
def test_products_of_others_in_bfloat16_keep_their_type(rows):
    """A graph of bfloat16 that this pass has not made has results of bfloat16."""
    weight = relax.const(np.ones((32, 16), ml_dtypes.bfloat16))

    def make(builder, x):
        half = builder.emit(relax.op.astype(x, "bfloat16"))
        return builder.emit(relax.op.matmul(half, weight))

    legal = relax.transform.LegalizeOps(legalize_map())(module(make, (rows, 32)))
    assert str(legal["main"].ret_ty.dtype) == "bfloat16"


def residual_block(builder, x):
    """The sum of two convolutions of one input, a bias behind each."""
    generator = np.random.default_rng(0)

    def layer(data):
        weight = constant(generator, 1, 1, 32, 16)
        made = builder.emit(
            relax.op.nn.conv2d(data, weight, data_layout="NHWC", kernel_layout="HWIO")
        )
        return builder.emit(relax.op.add(made, constant(generator, 16)))

    return builder.emit(relax.op.nn.relu(builder.emit(relax.op.add(layer(x), layer(x)))))


def test_the_later_of_two_convolutions_that_are_added_is_stored_in_bfloat16():
    mod = module(residual_block, (1, 6, 6, 32))
    with tvm.target.Target("llvm"):
        half = compute_in_bfloat16()(mod)
        lowered = tvm.transform.Sequential(lowering_passes(packs_weights=False))(half)
    calls = [each for each in values_of(lowered["main"]) if operator_name(each) == "relax.call_tir"]
    stored = [str(each.ty.dtype) for each in calls]
    assert stored == ["bfloat16", "bfloat16", "float32"]  # The input, the later layer, the sum.
    x = np.random.default_rng(1).standard_normal((1, 6, 6, 32)).astype("float32")
    machine = relax.VirtualMachine(tvm.compile(lowered, "llvm"), tvm.cpu())
    found = machine["main"](tvm.runtime.tensor(x)).numpy()
    first, first_bias, second, second_bias = (
        each.value.numpy() for each in constants_of(mod["main"])
    )
    terms = [
        rounded(x) @ rounded(weight[0, 0]) + bias
        for weight, bias in ((first, first_bias), (second, second_bias))
    ]
    expected = np.maximum(terms[0] + rounded(terms[1].astype("float32")), 0)
    np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-2)
    assert np.abs(found - np.maximum(terms[0] + terms[1], 0)).max() > 1e-4


def constants_of(function):
    """The constants of a function, in the order of their first use."""
    return [
        argument
        for value in values_of(function)
        for argument in getattr(value, "args", ())
        if isinstance(argument, tvm.ir.GenericConst)
    ]
