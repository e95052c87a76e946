# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""Tests of the legalisation of grouped convolutions."""

import kernel_chain
import numpy as np
import pytest

import tvm
from tvm import relax
from tvm_droplet_ms.model.kernels.registration import legalize_map


def convolution(data_shape, weights, **attributes):
    """A Relax module of a convolution, a bias and a ReLU."""
    options = dict(data_layout="NHWC", kernel_layout="HWIO") | attributes
    channels = {"HWIO": weights.shape[-1], "OIHW": weights.shape[0]}[options["kernel_layout"]]
    shape = (1, 1, 1, channels) if options["data_layout"] == "NHWC" else (1, channels, 1, 1)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(data_shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.conv2d(x, relax.const(weights), **options))
            y = builder.emit(relax.op.add(y, relax.const(np.full(shape, 0.5, "float32"))))
            y = builder.emit_output(relax.op.nn.relu(y))
        builder.emit_func_output(y)
    return builder.finalize()


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
    "1x1": ((1, 1), 4, {}),
    "3x3 padded": ((3, 3), 2, dict(padding=(1, 1, 1, 1))),
    "strided, dilated, padded on two sides": (
        (3, 3),
        3,
        dict(padding=(0, 1, 2, 0), strides=(2, 1), dilation=(1, 2)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_tuned_grouped_convolution_computes_what_numpy_does(name):
    kernel, groups, attributes = CASES[name]
    rng = np.random.default_rng(0)
    data = rng.standard_normal((1, 8, 9, 12)).astype("float32")
    weights = rng.standard_normal((*kernel, 12 // groups, 24)).astype("float32")
    mod = convolution(data.shape, weights, groups=groups, **attributes)
    run = kernel_chain.run_tuned(mod, [data], rules=legalize_map())
    np.testing.assert_allclose(
        run.outputs[0], in_numpy(data, weights, groups, **attributes), rtol=1e-4, atol=1e-5
    )
    assert run.kernels == ["fused_grouped_conv2d_add_relu"]
    assert kernel_chain.unscheduled(run.compiled) == []


def test_a_tile_of_output_channels_reads_one_group():
    mod = convolution((1, 4, 4, 12), np.ones((1, 1, 3, 24), "float32"), groups=4)

    def reads(rules):
        (kernel,) = (
            function
            for function in kernel_chain.fuse(mod, rules).functions.values()
            if isinstance(function, tvm.tirx.PrimFunc)
        )
        lines = kernel.script().splitlines()
        (line,) = (line for line in lines if " * " in line and "] + " in line)
        return line

    assert "//" in reads(None)
    assert "//" not in reads(legalize_map())


@pytest.mark.parametrize(
    "shape, weights, attributes",
    [
        ((1, 4, 4, 8), (1, 1, 8, 8), {}),
        ((1, 4, 4, 8), (3, 3, 1, 8), dict(groups=8)),
        ((1, 8, 4, 4), (8, 4, 1, 1), dict(groups=2, data_layout="NCHW", kernel_layout="OIHW")),
    ],
    ids=["one group", "depthwise", "NCHW"],
)
def test_other_convolutions_are_legalised_as_tvm_does(shape, weights, attributes):
    mod = convolution(shape, np.ones(weights, "float32"), **attributes)
    tvm.ir.assert_structural_equal(
        relax.transform.LegalizeOps(legalize_map())(mod), relax.transform.LegalizeOps()(mod)
    )
