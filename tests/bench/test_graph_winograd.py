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
"""Whether Winograd convolutions may be chosen after the graph."""

from functools import partial

import numpy as np
import pytest

from tvm import relax
from tvm_droplet_ms.bench import graph_winograd
from tvm_droplet_ms.bench.graph_models import GraphModel

CHANNELS = 128


def convolution(size, **options):
    """A convolution of which every second row and column is kept."""
    shape = (size, size, CHANNELS, CHANNELS)
    weight = np.random.default_rng(0).standard_normal(shape).astype("float32")
    x = relax.Var("x", relax.TensorType((1, 32, 32, CHANNELS), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO", "out_layout": "NHWC"}
            y = relax.op.nn.conv2d(x, relax.const(weight), padding=size // 2, **layouts, **options)
            y = builder.emit(y)
            extent = int(y.ty.shape[1])
            kept = relax.op.strided_slice(y, [1, 2], [0, 0], [extent, extent], [2, 2])
            result = builder.emit_output(kept)
        builder.emit_func_output(result)
    return builder.finalize()


def ratios(monkeypatch, make, speed):
    monkeypatch.setattr(graph_winograd, "MODELS", {"small": GraphModel(make)})
    monkeypatch.setattr(graph_winograd, "SPEEDS", (speed,))
    (pair,) = graph_winograd.compare("small")
    return pair


def test_order_matters_where_the_direct_graph_has_no_winograd_convolution(monkeypatch):
    # A stride of 2 saves three quarters of the products. It beats a convolution that is twice as
    # fast, and loses to one that is eight times as fast.
    assert ratios(monkeypatch, partial(convolution, 3), 2.0) == pytest.approx((1, 1))
    none, afterwards = ratios(monkeypatch, partial(convolution, 3), 8.0)
    assert none == afterwards
    assert 1.5 < afterwards < 2


@pytest.mark.parametrize(
    ("size", "options"), [(1, {}), (5, {}), (3, {"strides": 2}), (3, {"dilation": 2})]
)
def test_other_convolutions_stay_direct(monkeypatch, size, options):
    made = partial(convolution, size, **options)
    assert ratios(monkeypatch, made, 8.0) == pytest.approx((1, 1))


def test_table(monkeypatch, capsys):
    monkeypatch.setattr(graph_winograd, "MODELS", {"small": GraphModel(partial(convolution, 3))})
    assert graph_winograd.main(["--models", "small", "--markdown"]) == 0
    cells = capsys.readouterr().out.splitlines()[-1].strip("|").split("|")
    # At 4 the stride and Winograd's algorithm take as many products.
    assert [cell.strip() for cell in cells][:5] == ["small", *["1.000"] * 4]
