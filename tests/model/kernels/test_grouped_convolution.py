# SPDX-License-Identifier: Apache-2.0
"""Tests of the legalization of grouped convolutions."""

import kernel_chain
import numpy as np
import pytest
from graphs import build
from kernel_chain import tir_of

import tvm
from tvm import relax
from tvm.s_tir import meta_schedule as ms
from tvm_droplet_ms.model.kernels.grouped_convolution import pack_weights
from tvm_droplet_ms.model.kernels.lowering_passes import legalize_map, register_schedule_rules

register_schedule_rules()


def convolution(data_shape, weights, **attributes):
    """A Relax module of a convolution, a bias and a ReLU."""
    options = dict(data_layout="NHWC", kernel_layout="HWIO") | attributes
    channels = {"HWIO": weights.shape[-1], "OIHW": weights.shape[0]}[options["kernel_layout"]]
    shape = (1, 1, 1, channels) if options["data_layout"] == "NHWC" else (1, channels, 1, 1)

    def body(emit, x):
        y = emit(relax.op.nn.conv2d(x, relax.const(weights), **options))
        y = emit(relax.op.add(y, relax.const(np.full(shape, 0.5, "float32"))))
        return emit(relax.op.nn.relu(y))

    return build(data_shape, body)


def in_numpy(data, weights, groups, strides=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1)):
    """The same in NumPy: each group by itself."""
    top, left, bottom, right = padding
    data = np.pad(data.astype("float64"), ((0, 0), (top, bottom), (left, right), (0, 0)))
    size = [
        (data.shape[1 + i] - (weights.shape[i] - 1) * dilation[i] - 1) // strides[i] + 1
        for i in range(2)
    ]
    parts = []
    for inputs, kernels in zip(
        np.split(data, groups, axis=3), np.split(weights.astype("float64"), groups, axis=3)
    ):
        part = 0.0
        for i in range(weights.shape[0]):
            for j in range(weights.shape[1]):
                rows = slice(i * dilation[0], i * dilation[0] + size[0] * strides[0], strides[0])
                columns = slice(j * dilation[1], j * dilation[1] + size[1] * strides[1], strides[1])
                part = part + inputs[:, rows, columns][:, : size[0], : size[1]] @ kernels[i, j]
        parts.append(part)
    return np.maximum(np.concatenate(parts, axis=3) + 0.5, 0)


CASES = {
    "1x1": ((1, 1), 4, 24, {}),
    "3x3 padded": ((3, 3), 2, 24, dict(padding=(1, 1, 1, 1))),
    "strided, dilated, padded on two sides": (
        (3, 3),
        3,
        24,
        dict(padding=(0, 1, 2, 0), strides=(2, 1), dilation=(1, 2)),
    ),
    "34 outputs of a group": ((1, 1), 4, 136, {}),
    "17 outputs of a group, padded": ((3, 3), 2, 34, dict(padding=(1, 1, 1, 1))),
    "300 outputs of a group": ((1, 1), 2, 600, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_tuned_grouped_convolution_computes_what_numpy_does(name):
    kernel, groups, outputs, attributes = CASES[name]
    rng = np.random.default_rng(0)
    data = rng.standard_normal((1, 8, 9, 12)).astype("float32")
    weights = rng.standard_normal((*kernel, 12 // groups, outputs)).astype("float32")
    mod = convolution(data.shape, weights, groups=groups, **attributes)
    run = kernel_chain.run_tuned(mod, [data], rules=legalize_map())
    np.testing.assert_allclose(
        run.outputs[0], in_numpy(data, weights, groups, **attributes), rtol=1e-4, atol=1e-5
    )
    assert run.kernels == ["fused_grouped_conv2d_add_relu"]
    assert kernel_chain.unscheduled(run.compiled) == []


def kernel_of(mod, rules=None):
    (kernel,) = tir_of(kernel_chain.fuse(mod, rules))
    return kernel


def test_a_tile_of_output_channels_reads_one_group():
    mod = convolution((1, 4, 4, 12), np.ones((1, 1, 3, 24), "float32"), groups=4)

    def reads(rules):
        lines = kernel_of(mod, rules).script().splitlines()
        (line,) = (line for line in lines if " * " in line and "] + " in line)
        return line

    assert "//" in reads(None)
    assert "//" not in reads(legalize_map())


@pytest.mark.parametrize(
    ("outputs", "vectors"),
    [(8, (1, 8)), (15, (2, 8)), (16, (1, 16)), (17, (2, 16)), (34, (3, 16)), (64, (4, 16))],
)
def test_packed_weights_are_full_vectors(outputs, vectors):
    weights = np.random.default_rng(0).standard_normal((3, 2, 5, 4 * outputs)).astype("float32")
    packed = pack_weights(weights, 4)
    assert packed.shape == (4, 3, 2, 5, *vectors)
    flat = packed.reshape(4, 3, 2, 5, -1)
    for group in range(4):
        expected = weights[..., group * outputs : (group + 1) * outputs]
        np.testing.assert_array_equal(flat[group, ..., :outputs], expected)
    assert not flat[..., outputs:].any()


@pytest.mark.parametrize(
    ("outputs", "vectors"), [(15, (2, 8)), (24, (3, 8)), (32, (2, 16)), (34, (5, 8)), (47, (3, 16))]
)
def test_short_vectors_leave_fewer_lanes_empty(outputs, vectors):
    weights = np.ones((1, 1, 5, 4 * outputs), "float32")
    assert pack_weights(weights, 4, widest=8).shape[-2:] == vectors


def test_every_vector_of_a_tile_is_full():
    """47 outputs are three vectors of 16, not one of 47."""
    mod = convolution((1, 8, 8, 24), np.ones((1, 1, 6, 188), "float32"), groups=4)
    kernel = kernel_chain.fuse(mod, legalize_map())
    (task,) = ms.relax_integration.extract_tasks(kernel, kernel_chain.TARGET)
    _, spaces = kernel_chain.design_space(task.dispatched[0])
    assert len(spaces) == 2
    for seed in range(4):
        schedule = kernel_chain.draw_schedule(task.dispatched[0], seed=1 + seed)
        update = schedule.get_sblock("grouped_conv2d_nhwc_update")
        lanes = schedule.get(schedule.get_loops(update)[-1])
        assert (lanes.kind, int(lanes.extent)) == (tvm.tirx.ForKind.VECTORIZED, 16)


def test_groups_of_few_outputs_and_variable_weights_are_not_packed():
    few = convolution((1, 4, 4, 12), np.ones((1, 1, 3, 16), "float32"), groups=4)
    assert "packed_groups" not in kernel_of(few, legalize_map()).script()
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    variable = build(
        [(1, 4, 4, 12), (1, 1, 3, 64)],
        lambda emit, x, w: emit(relax.op.nn.conv2d(x, w, groups=4, **layouts)),
    )
    script = kernel_of(variable, legalize_map()).script()
    assert "grouped_conv2d_nhwc" in script and "packed_groups" not in script


@pytest.mark.parametrize(
    "shape, weights, attributes",
    [
        ((1, 4, 4, 8), (1, 1, 8, 8), {}),
        ((1, 4, 4, 8), (3, 3, 1, 8), dict(groups=8)),
        ((1, 8, 4, 4), (8, 4, 1, 1), dict(groups=2, data_layout="NCHW", kernel_layout="OIHW")),
    ],
    ids=["one group", "depthwise", "NCHW"],
)
def test_other_convolutions_are_legalized_as_tvm_does(shape, weights, attributes):
    mod = convolution(shape, np.ones(weights, "float32"), **attributes)
    tvm.ir.assert_structural_equal(
        relax.transform.LegalizeOps(legalize_map())(mod), relax.transform.LegalizeOps()(mod)
    )
