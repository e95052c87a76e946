# SPDX-License-Identifier: Apache-2.0
"""Tests of Winograd convolutions."""

import kernel_chain
import numpy as np
import pytest
from graphs import build

import tvm
from tvm import relax, te
from tvm.ir import IRModule
from tvm_droplet_ms.model.kernels.lowering_passes import register_schedule_rules
from tvm_droplet_ms.model.kernels.winograd.winograd import Layer, WinogradConvolutions
from tvm_droplet_ms.model.kernels.winograd.winograd_kernel import winograd_convolution
from tvm_droplet_ms.model.kernels.winograd.winograd_matrices import (
    POINTS,
    transform_weights,
    winograd_matrices,
)

TOLERANCE = {2: 2e-6, 4: 1e-5}
"""The largest error allowed, as a share of the largest output."""


@pytest.mark.parametrize("tile", POINTS)
def test_the_matrices_compute_a_convolution_of_one_dimension(tile):
    a, b, g = winograd_matrices(tile)
    rng = np.random.default_rng(tile)
    data, weights = rng.standard_normal(tile + 2), rng.standard_normal(3)
    outputs = a.T @ ((g @ weights) * (b.T @ data))
    np.testing.assert_allclose(outputs, np.correlate(data, weights, "valid"), rtol=1e-12)


def test_f_2_3_is_lavins_and_grays_up_to_signs():
    a, b, g = winograd_matrices(2)
    np.testing.assert_array_equal(np.abs(a), [[1, 0], [1, 1], [1, 1], [0, 1]])
    np.testing.assert_array_equal(np.abs(g), [[1, 0, 0], [0.5] * 3, [0.5] * 3, [0, 0, 1]])
    np.testing.assert_array_equal(
        np.abs(b.T), [[1, 0, 1, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 1, 0, 1]]
    )


def test_a_tile_without_an_algorithm_is_refused():
    with pytest.raises(ValueError, match="tile=3 has no Winograd algorithm"):
        winograd_matrices(3)


def direct(data, weights, padding):
    """A convolution of NHWC data by HWIO weights in float64."""
    top, left, bottom, right = padding
    data = np.pad(data.astype("float64"), ((0, 0), (top, bottom), (left, right), (0, 0)))
    height, width = data.shape[1] - 2, data.shape[2] - 2
    return sum(
        data[:, i : i + height, j : j + width] @ weights[i, j].astype("float64")
        for i in range(3)
        for j in range(3)
    )


@pytest.mark.parametrize("tile", POINTS)
def test_the_transformed_weights_compute_a_convolution_of_two_dimensions(tile):
    a, b, _ = winograd_matrices(tile)
    rng = np.random.default_rng(tile)
    data = rng.standard_normal((1, tile + 2, tile + 2, 3))
    weights = rng.standard_normal((3, 3, 3, 5))
    transformed = np.einsum("ay,bx,abc->yxc", b, b, data[0])
    products = np.einsum("yxc,yxco->yxo", transformed, transform_weights(weights, tile))
    outputs = np.einsum("yh,xw,yxo->hwo", a, a, products)
    np.testing.assert_allclose(outputs, direct(data, weights, (0, 0, 0, 0))[0], rtol=1e-10)


def convolution(data_shape, weights, bias=None, padding=(1, 1, 1, 1), residual=False, **attributes):
    """A Relax module of a convolution, with a bias and a ReLU if a bias is given."""
    options = dict(data_layout="NHWC", kernel_layout="HWIO") | attributes

    def body(emit, x):
        y = emit(relax.op.nn.conv2d(x, relax.const(weights), padding=padding, **options))
        y = y if bias is None else emit(relax.op.add(y, relax.const(bias)))
        y = emit(relax.op.add(y, x)) if residual else y
        return y if bias is None else emit(relax.op.nn.relu(y))

    return build(data_shape, body)


def random_layer(size, in_channels=8, out_channels=16, seed=0, batch=1):
    rng = np.random.default_rng(seed)
    data = rng.standard_normal((batch, *size, in_channels)).astype("float32")
    weights = rng.standard_normal((3, 3, in_channels, out_channels)).astype("float32")
    bias = rng.standard_normal((1, 1, 1, out_channels)).astype("float32")
    return data, weights, bias


@pytest.mark.parametrize(
    "size, padding", [((8, 8), (1, 1, 1, 1)), ((7, 10), (0, 0, 0, 0)), ((5, 6), (0, 1, 2, 0))]
)
@pytest.mark.parametrize("tile", POINTS)
def test_a_tuned_winograd_convolution_is_the_direct_one(tile, size, padding):
    data, weights, bias = random_layer(size)
    mod = WinogradConvolutions(lambda shape: tile)(
        convolution(data.shape, weights, bias, padding=padding)
    )
    run = kernel_chain.run_tuned(mod, [data])
    expected = np.maximum(direct(data, weights, padding) + bias, 0)
    assert np.abs(run.outputs[0] - expected).max() <= TOLERANCE[tile] * np.abs(expected).max()
    assert run.kernels == [f"fused_conv2d_winograd_{tile}_add_relu"]
    assert kernel_chain.unscheduled(run.compiled) == []


@pytest.mark.parametrize(
    "batch, size, channels",
    [(2, (9, 6), (3, 5)), (1, (17, 30), (24, 40)), (3, (4, 4), (16, 64)), (1, (13, 13), (32, 48))],
)
@pytest.mark.parametrize("tile", POINTS)
def test_batches_and_channels_of_any_number(tile, batch, size, channels):
    data, weights, bias = random_layer(size, *channels, batch=batch)
    mod = WinogradConvolutions(lambda shape: tile)(convolution(data.shape, weights, bias))
    run = kernel_chain.run_tuned(mod, [data])
    expected = np.maximum(direct(data, weights, (1, 1, 1, 1)) + bias, 0)
    assert np.abs(run.outputs[0] - expected).max() <= TOLERANCE[tile] * np.abs(expected).max()


def test_without_a_schedule_it_computes_the_same():
    data, weights, bias = random_layer((6, 6))
    mod = WinogradConvolutions(lambda shape: 4)(convolution(data.shape, weights, bias))
    (output,) = kernel_chain.execute(kernel_chain.fuse(mod), [data])
    expected = np.maximum(direct(data, weights, (1, 1, 1, 1)) + bias, 0)
    assert np.abs(output - expected).max() <= TOLERANCE[4] * np.abs(expected).max()


def test_a_residual_add_fuses_too():
    data, weights, bias = random_layer((6, 6), 16, 16)
    mod = WinogradConvolutions(lambda shape: 4)(
        convolution(data.shape, weights, bias, residual=True)
    )
    run = kernel_chain.run_tuned(mod, [data])
    expected = np.maximum(direct(data, weights, (1, 1, 1, 1)) + bias + data, 0)
    assert np.abs(run.outputs[0] - expected).max() <= TOLERANCE[4] * np.abs(expected).max()
    assert run.kernels == ["fused_conv2d_winograd_4_add_add1_relu"]
    # The weights are packed at compile time.
    assert run.schedules[0].mod.script().count("layout_rewrite_preproc") >= 1
    assert run.compiled["main"].script().count("call_tir") == 1


@pytest.mark.parametrize("padding", [(1, 1, 1, 1), (0, 0, 0, 0)])
def test_the_transforms_are_vectorized_over_channels_and_unrolled(padding):
    register_schedule_rules()
    data = te.placeholder((1, 8, 8, 16), "float32")
    weights = te.placeholder((4, 4, 16, 32), "float32")
    function = te.create_prim_func([data, weights, winograd_convolution(data, weights, 2, padding)])
    mod = IRModule({"main": function.with_attr("global_symbol", "main")})
    _, (space,) = kernel_chain.design_space(mod)
    schedule = kernel_chain.draw_schedule(mod)
    for name in ("data_columns", "data_pack", "inverse_columns", "inverse"):
        *_, x, vector = (
            loop
            for loop in map(schedule.get, schedule.get_loops(schedule.get_sblock(name)))
            if int(loop.extent) > 1
        )
        assert vector.kind == tvm.tirx.ForKind.VECTORIZED
        assert int(vector.extent) == 16
        assert x.kind == tvm.tirx.ForKind.UNROLLED
    # A strip is transformed, multiplied and transformed back before the next one.
    strips, *others = (
        space.get(space.get_loops(space.get_sblock(name))[1])
        for name in ("conv2d_winograd", "bgemm", "data_pack", "data_columns", "inverse")
    )
    assert all(loop.same_as(strips) for loop in others)


def test_choose_sees_each_candidate_and_may_keep_it():
    data, weights, bias = random_layer((7, 10))
    mod = convolution(data.shape, weights, bias, padding=(0, 1, 2, 0))
    seen = []
    kept = WinogradConvolutions(seen.append)(mod)
    assert seen == [Layer(1, 7, 10, 8, 7, 9, 16)]
    tvm.ir.assert_structural_equal(kept, mod)


def test_a_tile_that_choose_made_up_is_refused():
    data, weights, bias = random_layer((6, 6))
    with pytest.raises(Exception, match=r"choose returned the tile 3 for Layer\("):
        WinogradConvolutions(lambda shape: 3)(convolution(data.shape, weights, bias))


OTHERS = {
    "stride": dict(strides=(2, 2)),
    "dilation": dict(dilation=(2, 2)),
    "groups": dict(groups=2),
    "NCHW": dict(data_layout="NCHW", kernel_layout="OIHW"),
    "another kernel layout": dict(kernel_layout="OHWI"),
    "another output layout": dict(out_layout="NCHW"),
    "1x1": {},
    "5x5": {},
    "1x3": {},
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_convolutions_are_left(name):
    shapes = {"groups": (3, 3, 4, 8), "NCHW": (8, 8, 3, 3), "another kernel layout": (8, 3, 3, 8)}
    shapes |= {"1x1": (1, 1, 8, 8), "5x5": (5, 5, 8, 8), "1x3": (1, 3, 8, 8)}
    weights = np.ones(shapes.get(name, (3, 3, 8, 8)), "float32")
    mod = convolution((1, 8, 8, 8), weights, **OTHERS[name])
    replaced = WinogradConvolutions(lambda shape: pytest.fail(f"asked for {shape}"))(mod)
    tvm.ir.assert_structural_equal(replaced, mod)


def test_weights_that_are_no_constant_are_left():
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    mod = build(
        [(1, 8, 8, 8), (3, 3, 8, 8)], lambda emit, x, w: emit(relax.op.nn.conv2d(x, w, **layouts))
    )
    tvm.ir.assert_structural_equal(WinogradConvolutions(lambda shape: 4)(mod), mod)
