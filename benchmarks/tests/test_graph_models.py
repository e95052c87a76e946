# SPDX-License-Identifier: Apache-2.0
"""The models whose graphs are searched: sizes as published, forms by hand, searched graphs."""

from functools import partial

import pytest
from small_models import check_outputs
from stub_bench import PRICE

from benchmarks.zoo.graph_models import MODELS
from benchmarks.zoo.graph_models.inception import inception_v3
from benchmarks.zoo.graph_models.nasnet import nasnet_a
from benchmarks.zoo.graph_models.recurrent import lstm, lstm_by_hand, nasrnn
from benchmarks.zoo.graph_models.repvgg import repvgg, repvgg_by_hand
from benchmarks.zoo.graph_models.residual import mobilenet_v2, resnet_v1, resnext
from benchmarks.zoo.graph_models.transformers import bert_encoder, linear_bert
from tvm import relax
from tvm.ir import GenericConst
from tvm_droplet_ms.model.bindings import array_of
from tvm_droplet_ms.model.prepare import prepare_graph
from tvm_droplet_papers.graph import optimize

STAGES = ((1, 8), (2, 8))

SMALL = {
    "resnet_v1": (partial(resnet_v1, 16, 4, (1, 1), 5), (1, 5)),
    "resnext": (partial(resnext, 16, 8, (1,), 5, 4), (1, 5)),
    "mobilenet": (partial(mobilenet_v2, 16, ((1, 8, 1, 1), (2, 8, 1, 1)), 16, 5), (1, 5)),
    "repvgg": (partial(repvgg, 16, STAGES, 5), (1, 5)),
    "lstm": (partial(lstm, 3, 8), (1, 8)),
    "nasrnn": (partial(nasrnn, 2, 8), (1, 8)),
    "bert_encoder": (partial(bert_encoder, 1, 6, 16, 2, 32), (1, 6, 16)),
    "inception_v3": (partial(inception_v3, 75, (8,), (8,), 1, 5), (1, 5)),
    "nasnet_a": (partial(nasnet_a, 33, 8, 8, 1, 5), (1, 5)),
    "linear_bert": (partial(linear_bert, 2, 6, 16, 2), (6, 16)),
}


@pytest.mark.parametrize("name", SMALL)
def test_searched_graph_computes_the_same(name):
    make, shape = SMALL[name]
    mod = make()
    assert tuple(map(int, mod["main"].ret_ty.shape)) == shape
    result = optimize(prepare_graph()(mod), "llvm", price=PRICE, search="saturate", max_nodes=300)
    assert result.reports[0].search != "none", result
    check_outputs(mod, result.mod, 1e-5, least_spread=1e-2)


@pytest.mark.parametrize(
    ("as_imported", "by_hand"),
    [
        (partial(repvgg, 16, STAGES, 5), partial(repvgg_by_hand, 16, STAGES, 5)),
        (partial(lstm, 4, 8), partial(lstm_by_hand, 4, 8)),
    ],
)
def test_form_by_hand_computes_the_same(as_imported, by_hand):
    before, after = as_imported(), by_hand()
    check_outputs(before, after, 1e-5, least_spread=1e-2)
    assert heavy_calls(after) < heavy_calls(before)


def heavy_calls(mod):
    bindings = mod["main"].body.blocks[0].bindings
    calls = [b.value for b in bindings if isinstance(b.value, relax.Call)]
    return sum(call.op.name in ("relax.nn.conv2d", "relax.matmul") for call in calls)


def parameters(mod):
    """Trained parameters: all constants but scalars, and means and variances of batch norms."""
    sizes, statistics = {}, set()

    def visit(expr):
        if isinstance(expr, GenericConst):
            sizes[expr] = array_of(expr).size
        elif isinstance(expr, relax.Call) and expr.op.name == "relax.nn.batch_norm":
            statistics.update(expr.args[3:5])

    relax.analysis.post_order_visit(mod["main"], visit)
    return sum(size for expr, size in sizes.items() if size > 1 and expr not in statistics)


@pytest.mark.parametrize(
    ("make", "millions"),
    [
        # As published, or by PyTorch's models of the same names.
        (resnet_v1, 25.557),
        (resnext, 25.029),
        (mobilenet_v2, 3.505),
        (inception_v3, 23.835),
        (nasnet_a, 5.289),
        (repvgg, 9.11),
        (repvgg_by_hand, 8.31),
        (partial(bert_encoder, 1), 7.088),
    ],
)
def test_parameters_are_as_many_as_published(make, millions):
    assert parameters(make()) / 1e6 == pytest.approx(millions, rel=6e-4)


def test_strides_of_version_1_are_in_the_first_layer_of_a_block():
    bindings = resnet_v1(32, 4, (1, 1), 5)["main"].body.blocks[0].bindings
    strided = [
        int(call.args[1].ty.shape[2])
        for call in (b.value for b in bindings if isinstance(b.value, relax.Call))
        if call.op.name == "relax.nn.conv2d" and int(call.attrs.strides[0]) == 2
    ]
    # The first layer of all, and two 1x1: that of the block and that of its shortcut.
    assert strided == [7, 1, 1]


def test_light_model_is_imported():
    pytest.importorskip("onnx")
    function = MODELS["squeezenet"].make()["main"]
    assert [int(extent) for extent in function.ret_ty.shape] == [1, 1000, 1, 1]
