# SPDX-License-Identifier: Apache-2.0
"""Rewrites of ONNX nodes, against ONNX's reference implementation."""

import numpy as np
import pytest
from graphs import clean, operators
from numpy_relax import evaluate

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from tvm.relax.frontend.onnx import from_onnx  # noqa: E402
from tvm_droplet_ms.model.folding.dropout import drop_dropouts  # noqa: E402
from tvm_droplet_ms.model.onnx.rewriting.nodes import prepare_onnx  # noqa: E402
from tvm_droplet_ms.model.onnx.rewriting.pads import same_padding  # noqa: E402
from tvm_droplet_ms.model.stacks import unstack_reductions  # noqa: E402


def node(kind, inputs, output="y", **attributes):
    return helper.make_node(kind, inputs.split(), output.split(), **attributes)


def tensor(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def floats(*values):
    return np.array(values, "float32")


def ints(*values):
    return np.array(values, "int64")


def make(nodes, extents, *, opset=13, outputs="y", **constants):
    """Make a model of one input, x, and some initializers."""
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, extents)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs.split()],
        [numpy_helper.from_array(values, name) for name, values in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def check(model, shape):
    """Rewrite, import, compare the outputs with ONNX's reference, and return the module."""
    before = model.SerializeToString()
    rewritten = prepare_onnx(model)
    assert model.SerializeToString() == before
    x = 4 * tensor(*shape, seed=1)
    expected = ReferenceEvaluator(model).run(None, {"x": x})
    for actual, wanted in zip(ReferenceEvaluator(rewritten).run(None, {"x": x}), expected):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5)
    mod = clean(unstack_reductions()(clean(drop_dropouts()(from_onnx(rewritten)))))
    actual = evaluate(mod, x) if "relax.call_tir" not in operators(mod) else None
    if actual is not None:
        np.testing.assert_allclose(actual, expected[0], rtol=1e-4, atol=1e-4)
    return mod


def kinds(model):
    return [each.op_type for each in prepare_onnx(model).graph.node]


@pytest.mark.parametrize(
    ("opset", "inputs", "bounds", "expected"),
    [
        (6, "x", {"min": 0.0, "max": 6.0}, ["maximum", "minimum"]),
        (6, "x", {"max": 1.5}, ["minimum"]),
        (13, "x lo hi", {"lo": -1.0, "hi": 2.0}, ["maximum", "minimum"]),
        (13, "x lo", {"lo": 0.5}, ["maximum"]),
        (13, "x", {}, []),
    ],
)
def test_clip_becomes_a_maximum_and_a_minimum(opset, inputs, bounds, expected):
    constants = {} if opset < 11 else {name: np.float32(bounds[name]) for name in bounds}
    clip = node("Clip", inputs, **({} if constants else bounds))
    relu = node("Relu", "y", "z")
    model = make([clip, relu], (2, 3), opset=opset, outputs="z", **constants)
    counts = operators(check(model, (2, 3)))
    assert counts == dict.fromkeys([f"relax.{name}" for name in [*expected, "nn.relu"]], 1)


def test_clip_between_constants_of_nodes_is_found():
    nodes = [
        helper.make_node("Constant", [], ["lo"], value=numpy_helper.from_array(np.float32(0))),
        node("Clip", "x lo"),
    ]
    assert operators(check(make(nodes, (2, 3)), (2, 3))) == {"relax.maximum": 1}


def test_clip_whose_bound_is_computed_stays():
    nodes = [node("ReduceMax", "x", "hi", keepdims=0), node("Clip", "x lo hi")]
    assert "Clip" in kinds(make(nodes, (2, 3), lo=np.float32(0)))


def test_clip_of_another_type_stays():
    nodes = [node("Cast", "x", "d", to=TensorProto.DOUBLE), node("Clip", "d", min=0.0, max=1.0)]
    assert "Clip" in kinds(make(nodes, (2, 3), opset=6))


def test_sums_and_maxima_become_pairs():
    nodes = [node("Sum", "x c x", "s"), node("Max", "s c"), node("Sum", "y", "z")]
    mod = check(make(nodes, (2, 3), outputs="z", c=tensor(3)), (2, 3))
    assert operators(mod) == {"relax.add": 2, "relax.maximum": 1}


def test_dropouts_disappear():
    nodes = [node("Dropout", "x", "d mask"), node("Dropout", "d")]
    assert operators(check(make(nodes, (2, 3)), (2, 3))) == {}


def test_each_constant_of_shape_becomes_a_constant_of_its_own():
    value = helper.make_tensor("value", TensorProto.FLOAT, [1], [0.5])
    nodes = [
        node("ConstantOfShape", "shape", "a", value=value),
        node("ConstantOfShape", "shape", "b", value=value),
        node("ConstantOfShape", "shape", "zeros"),
        node("Add", "x a", "xa"),
        node("Mul", "xa b", "xab"),
        node("Add", "xab zeros"),
    ]
    model = make(nodes, (2, 3), shape=ints(2, 3))
    assert kinds(model) == ["Constant"] * 3 + ["Add", "Mul", "Add"]
    assert operators(check(model, (2, 3))) == {"relax.add": 2, "relax.multiply": 1}


CONV = {"w": tensor(4, 3, 3, 3)}
IMAGE = (1, 3, 7, 8)


def padded(
    consumer, *, opset=13, kind="Pad", pads=(0, 0, 1, 2, 0, 0, 3, 0), before=(), **constants
):
    """Make a model of a pad and the node behind it."""
    source = before[-1].output[0] if before else "x"
    pad = node("Pad", f"{source} pads", "p")
    return make([*before, pad, consumer], IMAGE, opset=opset, pads=ints(*pads), **constants)


@pytest.mark.parametrize(
    "options",
    [{}, {"pads": [1, 1, 0, 0], "strides": [2, 1]}, {"auto_pad": "VALID", "dilations": [2, 1]}],
)
def test_pad_goes_into_the_convolution(options):
    model = padded(node("Conv", "p w", **options), **CONV)
    assert kinds(model) == ["Conv"]
    assert operators(check(model, IMAGE)) == {"relax.nn.conv2d": 1}


def test_pad_of_an_old_opset_goes_into_the_convolution():
    nodes = [node("Pad", "x", "p", pads=[0, 0, 1, 0, 0, 0, 0, 1]), node("Conv", "p w")]
    assert operators(check(make(nodes, IMAGE, opset=9, **CONV), IMAGE)) == {"relax.nn.conv2d": 1}


def test_pad_that_two_nodes_use_stays_for_the_one_that_needs_it():
    nodes = [node("Pad", "x pads", "p"), node("Conv", "p w", "c"), node("Relu", "p", "y")]
    model = make(nodes, IMAGE, outputs="c y", pads=ints(0, 0, 1, 1, 0, 0, 1, 1), **CONV)
    assert kinds(model) == ["Pad", "Conv", "Relu"]
    assert list(prepare_onnx(model).graph.node[1].input) == ["x", "w"]
    check(model, IMAGE)


@pytest.mark.parametrize(
    ("kind", "options", "before"),
    [
        ("AveragePool", {"count_include_pad": 1, "pads": [1, 0, 0, 1]}, []),
        ("AveragePool", {}, []),
        ("MaxPool", {"strides": [2, 2]}, [node("Relu", "x", "r")]),
    ],
)
def test_pad_goes_into_pools_where_the_result_is_the_same(kind, options, before):
    pads = (0, 0, 1, 0, 0, 0, 1, 1)
    pool = node(kind, "p", kernel_shape=[3, 3], **options)
    model = padded(pool, pads=pads, before=before)
    assert "Pad" not in kinds(model)
    check(model, IMAGE)


@pytest.mark.parametrize(
    "consumer",
    [
        node("MaxPool", "p", kernel_shape=[3, 3]),
        node("AveragePool", "p", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("AveragePool", "p", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
        node("AveragePool", "p", kernel_shape=[1, 1]),
        node("AveragePool", "p", kernel_shape=[3, 3], auto_pad="SAME_UPPER"),
        node("Relu", "p"),
    ],
)
def test_pad_stays_in_front_of_other_nodes(consumer):
    assert "Pad" in kinds(padded(consumer, pads=(0, 0, 1, 1, 0, 0, 1, 1)))


@pytest.mark.parametrize(
    "pads", [(0, 1, 0, 0, 0, 0, 0, 0), (0, 0, -1, 0, 0, 0, 0, 0), (1, 0, 0, 0, 0, 0, 0, 0)]
)
def test_pad_of_other_axes_and_negative_pads_stay(pads):
    weight = {"w": tensor(4, 4 if pads[1] else 3, 3, 3)}
    assert "Pad" in kinds(padded(node("Conv", "p w"), pads=pads, **weight))


def test_pads_with_other_values_and_modes_stay():
    conv, pads = node("Conv", "p w"), ints(0, 0, 1, 1, 0, 0, 1, 1)
    ones = [node("Pad", "x pads one", "p"), conv]
    assert "Pad" in kinds(make(ones, IMAGE, pads=pads, one=np.float32(1), **CONV))
    edge = [node("Pad", "x pads", "p", mode="edge"), conv]
    assert "Pad" in kinds(make(edge, IMAGE, pads=pads, **CONV))
    axes = [node("Pad", "x pads  axes", "p"), conv]
    axes[0].input[:] = ["x", "two", "", "axes"]
    model = make(axes, IMAGE, opset=18, two=ints(1, 1, 1, 1), axes=ints(2, 3), **CONV)
    assert "Pad" in kinds(model)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(
    "options", [{}, {"strides": [2, 2]}, {"strides": [2, 3], "dilations": [1, 2]}]
)
def test_same_padding_becomes_explicit(mode, options):
    model = make([node("Conv", "x w", auto_pad=mode, **options)], IMAGE, **CONV)
    assert operators(check(model, IMAGE)) == {"relax.nn.conv2d": 1}


def test_same_padding_of_a_symbolic_input_takes_the_shape_that_is_given():
    model = make(
        [node("Conv", "x w", auto_pad="SAME_UPPER", strides=[2, 2])], (1, 3, "h", 8), **CONV
    )

    def auto_pad(rewritten):
        (convolution,) = rewritten.graph.node
        values = {each.name: helper.get_attribute_value(each) for each in convolution.attribute}
        return values["auto_pad"], values.get("pads")

    assert auto_pad(prepare_onnx(model)) == (b"SAME_UPPER", None)
    assert auto_pad(prepare_onnx(model, {"x": (1, 3, 7, 8)})) == (b"NOTSET", [1, 0, 1, 1])


def test_same_padding_is_the_hand_worked_one():
    assert same_padding([5, 6], [3, 3], [2, 2], [1, 1], lower=False) == [1, 0, 1, 1]
    assert same_padding([6], [3], [2], [1], lower=True) == [1, 0]
    assert same_padding([4], [1], [2], [1], lower=False) == [0, 0]
    assert same_padding([None], [3], [2], [1], lower=False) is None


def test_nodes_of_other_domains_stay():
    clip = node("Clip", "x", domain="mine")
    model = make([clip], (2, 3))
    model.opset_import.append(helper.make_opsetid("mine", 1))
    assert kinds(model) == ["Clip"]


def test_one_hot_of_a_depth_that_is_computed_stays():
    nodes = [
        node("Cast", "x", "i", to=TensorProto.INT64),
        node("ReduceMax", "i", "depth", keepdims=0),
        node("OneHot", "i depth values"),
    ]
    assert "OneHot" in kinds(make(nodes, (2, 3), values=floats(0, 1)))


def test_pads_and_what_is_before_them_of_other_domains_stay():
    """A pad of another domain may reflect, and its Relu may be a leaky one."""
    mine = helper.make_opsetid("mine", 1)
    pad = node("Pad", "x pads", "p", domain="mine")
    convolution = make([pad, node("Conv", "p w")], IMAGE, pads=ints(0, 0, 1, 2, 0, 0, 3, 0), **CONV)
    pool = padded(
        node("MaxPool", "p", kernel_shape=[4, 3]), before=[node("Relu", "x", "r", domain="mine")]
    )
    for model in (convolution, pool):
        model.opset_import.append(mine)
        assert "Pad" in kinds(model)
    own = padded(node("MaxPool", "p", kernel_shape=[4, 3]), before=[node("Relu", "x", "r")])
    assert kinds(own) == ["Relu", "MaxPool"]


@pytest.mark.parametrize("kind", ["Squeeze", "Unsqueeze"])
def test_an_axis_that_is_a_scalar_becomes_a_list(kind):
    """ONNX Runtime takes it, and files have it; ONNX's reference does not."""
    model = prepare_onnx(make([node(kind, "x axis")], (1, 3), axis=np.int64(0)))
    assert [each.op_type for each in model.graph.node] == ["Constant", kind]
    expected = tensor(3) if kind == "Squeeze" else tensor(3).reshape(1, 1, 3)
    (actual,) = ReferenceEvaluator(model).run(None, {"x": tensor(3).reshape(1, 3)})
    np.testing.assert_array_equal(actual, expected)
