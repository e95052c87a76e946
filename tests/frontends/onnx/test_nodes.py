# SPDX-License-Identifier: Apache-2.0
"""Clips, pads and other nodes that graph passes know, against ONNX's reference implementation."""

import numpy as np
import pytest
from graphs import calls, clean, operators
from numpy_relax import evaluate

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from onnx_models import model, node, run_imported, value  # noqa: E402

from tvm.relax.frontend.onnx import from_onnx  # noqa: E402
from tvm_droplet_ms.frontends.onnx.operators.importer import more_operators  # noqa: E402
from tvm_droplet_ms.frontends.onnx.operators.nodes.pooling import same_padding  # noqa: E402
from tvm_droplet_ms.model.folding.taps import fold_pads  # noqa: E402
from tvm_droplet_ms.model.layout.layout import drop_dropouts  # noqa: E402
from tvm_droplet_ms.model.stacks import unstack_reductions  # noqa: E402


def tensor(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def floats(*values):
    return np.array(values, "float32")


def ints(*values):
    return np.array(values, "int64")


def make(nodes, extents, *, opset=13, outputs="y", **constants):
    """Make a model of one input, x, and some initializers."""
    return model(nodes, [value("x", extents)], outputs.split(), opset=opset, **constants)


def imported(made):
    """What graph passes get, after the pads are moved."""
    before = made.SerializeToString()
    with more_operators:
        mod = from_onnx(made)
    assert made.SerializeToString() == before
    return clean(fold_pads()(clean(drop_dropouts()(mod))))


def check(made, shape):
    """Import, compare the outputs with ONNX's reference, and return the module."""
    x = 4 * tensor(*shape, seed=1)
    expected = ReferenceEvaluator(made).run(None, {"x": x})
    mod = clean(unstack_reductions()(imported(made)))
    if "relax.call_tir" not in operators(mod):
        found = evaluate(mod, x)
        for actual, wanted in zip(found if isinstance(found, tuple) else [found], expected):
            np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-4)
    return mod


def kinds(made):
    return operators(imported(made))


def refused(made, operator):
    """Importing a model fails at a node of this operator."""
    with pytest.raises(ValueError, match=rf"\({operator}\)"):
        imported(made)


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
    made = make([clip, relu], (2, 3), opset=opset, outputs="z", **constants)
    counts = operators(check(made, (2, 3)))
    assert counts == dict.fromkeys([f"relax.{name}" for name in [*expected, "nn.relu"]], 1)


def test_clip_between_constants_of_nodes_is_found():
    nodes = [
        helper.make_node("Constant", [], ["lo"], value=numpy_helper.from_array(np.float32(0))),
        node("Clip", "x lo"),
    ]
    assert operators(check(make(nodes, (2, 3)), (2, 3))) == {"relax.maximum": 1}


def test_clip_whose_bound_is_computed_stays():
    nodes = [node("ReduceMax", "x", "hi", keepdims=0), node("Clip", "x lo hi")]
    assert "relax.call_tir" in kinds(make(nodes, (2, 3), lo=np.float32(0)))


def test_clip_of_another_type_stays():
    nodes = [node("Cast", "x", "d", to=TensorProto.DOUBLE), node("Clip", "d", min=0.0, max=1.0)]
    assert "relax.call_tir" in kinds(make(nodes, (2, 3), opset=6))


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
    made = make(nodes, (2, 3), shape=ints(2, 3))
    assert operators(check(made, (2, 3))) == {"relax.add": 2, "relax.multiply": 1}


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
    made = padded(node("Conv", "p w", **options), **CONV)
    assert operators(check(made, IMAGE)) == {"relax.nn.conv2d": 1}


def test_pad_of_an_old_opset_goes_into_the_convolution():
    widths = [0, 0, 1, 0, 0, 0, 0, 1]
    nodes = [node("Pad", "x", "p", pads=widths), node("Conv", "p w")]
    assert operators(check(make(nodes, IMAGE, opset=9, **CONV), IMAGE)) == {"relax.nn.conv2d": 1}
    first = [node("Pad", "x", "p", paddings=widths), node("Conv", "p w")]
    (convolution,) = calls(imported(make(first, IMAGE, opset=1, **CONV)), "nn.conv2d")
    assert list(convolution.attrs.padding) == [1, 0, 0, 1]


def test_pad_that_two_nodes_use_stays_for_the_one_that_needs_it():
    nodes = [node("Pad", "x pads", "p"), node("Conv", "p w", "c"), node("Relu", "p", "y")]
    made = make(nodes, IMAGE, outputs="c y", pads=ints(0, 0, 1, 1, 0, 0, 1, 1), **CONV)
    mod = check(made, IMAGE)
    assert operators(mod) == {f"relax.nn.{name}": 1 for name in ("pad", "conv2d", "relu")}
    (convolution,) = calls(mod, "nn.conv2d")
    assert convolution.args[0].same_as(mod["main"].params[0])


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
    made = padded(pool, pads=pads, before=before)
    assert "relax.nn.pad" not in operators(check(made, IMAGE))


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
    assert "relax.nn.pad" in kinds(padded(consumer, pads=(0, 0, 1, 1, 0, 0, 1, 1)))


@pytest.mark.parametrize(
    "pads", [(0, 1, 0, 0, 0, 0, 0, 0), (0, 0, -1, 0, 0, 0, 0, 0), (1, 0, 0, 0, 0, 0, 0, 0)]
)
def test_pad_of_other_axes_and_negative_pads_stay(pads):
    weight = {"w": tensor(4, 4 if pads[1] else 3, 3, 3)}
    counts = kinds(padded(node("Conv", "p w"), pads=pads, **weight))
    assert counts.keys() & {"relax.nn.pad", "relax.call_tir"}


def test_pads_with_other_values_and_modes_stay():
    conv, pads = node("Conv", "p w"), ints(0, 0, 1, 1, 0, 0, 1, 1)
    ones = [node("Pad", "x pads one", "p"), conv]
    assert "relax.call_tir" in kinds(make(ones, IMAGE, pads=pads, one=np.float32(1), **CONV))
    edge = [node("Pad", "x pads", "p", mode="edge"), conv]
    assert "relax.call_tir" in kinds(make(edge, IMAGE, pads=pads, **CONV))
    axes = [node("Pad", "x two  axes", "p"), conv]
    made = make(axes, IMAGE, opset=18, two=ints(1, 1, 1, 1), axes=ints(2, 3), **CONV)
    assert "relax.call_tir" in kinds(made)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(
    "options", [{}, {"strides": [2, 2]}, {"strides": [2, 3], "dilations": [1, 2]}]
)
def test_same_padding_becomes_explicit(mode, options):
    made = make([node("Conv", "x w", auto_pad=mode, **options)], IMAGE, **CONV)
    assert operators(check(made, IMAGE)) == {"relax.nn.conv2d": 1}


def test_same_padding_of_a_strided_convolution_needs_the_extents():
    same = node("Conv", "x w", auto_pad="SAME_UPPER", strides=[2, 2])
    (convolution,) = calls(imported(make([same], (1, 3, 7, 8), **CONV)), "nn.conv2d")
    assert [int(width) for width in convolution.attrs.padding] == [1, 0, 1, 1]
    refused(make([same], (1, 3, "h", 8), **CONV), "Conv")


def test_same_padding_is_the_hand_worked_one():
    assert same_padding([5, 6], [3, 3], [2, 2], [1, 1], lower=False) == [1, 0, 1, 1]
    assert same_padding([6], [3], [2], [1], lower=True) == [1, 0]
    assert same_padding([4], [1], [2], [1], lower=False) == [0, 0]
    assert same_padding([None], [3], [2], [1], lower=False) is None


def test_nodes_of_other_domains_are_refused():
    """A pad of another domain may reflect, and its Relu may be a leaky one."""
    mine = helper.make_opsetid("mine", 1)
    pad = node("Pad", "x pads", "p", domain="mine")
    convolution = make([pad, node("Conv", "p w")], IMAGE, pads=ints(0, 0, 1, 2, 0, 0, 3, 0), **CONV)
    pool = padded(
        node("MaxPool", "p", kernel_shape=[4, 3]), before=[node("Relu", "x", "r", domain="mine")]
    )
    clip = make([node("Clip", "x", domain="mine")], (2, 3))
    for made, operator in ((convolution, "Pad"), (pool, "Relu"), (clip, "Clip")):
        made.opset_import.append(mine)
        refused(made, operator)
    own = padded(node("MaxPool", "p", kernel_shape=[4, 3]), before=[node("Relu", "x", "r")])
    assert kinds(own) == {"relax.nn.relu": 1, "relax.nn.max_pool2d": 1}


def test_one_hot_of_a_depth_that_is_computed_is_refused():
    nodes = [
        node("Cast", "x", "i", to=TensorProto.INT64),
        node("ReduceMax", "i", "depth", keepdims=0),
        node("OneHot", "i depth values"),
    ]
    refused(make(nodes, (2, 3), values=floats(0, 1)), "OneHot")


@pytest.mark.parametrize("kind", ["Squeeze", "Unsqueeze"])
def test_an_axis_that_is_a_scalar_becomes_a_list(kind):
    """ONNX Runtime takes it, and files have it; ONNX's reference does not."""
    made = make([node(kind, "x axis")], (1, 3), axis=np.int64(0))
    expected = tensor(3) if kind == "Squeeze" else tensor(3).reshape(1, 1, 3)
    np.testing.assert_array_equal(evaluate(imported(made), tensor(3).reshape(1, 3)), expected)


INDICES = np.array([[0, 3, 4], [-1, -4, -5]])
"""Of a depth of four: the first, the last, none, the last, the first, none."""


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("kind", ["float32", "int64"])
def test_one_hot_is_right_in_the_type_of_its_values(axis, kind):
    values = np.array([2, 5], kind)
    output = value("y", None, helper.np_dtype_to_tensor_dtype(values.dtype))
    inputs = [value("x", [2, 3], TensorProto.INT64)]
    one_hot = node("OneHot", "x depth values", axis=axis)
    made = model([one_hot], inputs, [output], depth=np.array(4), values=values)
    assert "relax.one_hot" not in operators(imported(made))
    on = np.zeros((2, 3, 4), bool)
    on[0, 0, 0] = on[0, 1, 3] = on[1, 0, 3] = on[1, 1, 0] = True
    expected = np.moveaxis(np.where(on, values[1], values[0]), -1, axis)
    with more_operators:
        (actual,) = run_imported(made, INDICES)
    assert actual.dtype == kind
    np.testing.assert_array_equal(actual, expected)


def test_one_hot_of_an_index_that_is_an_output_too():
    """Its shape is known as that of an output, and not as one of the values between."""
    nodes = [node("Mod", "x seven", "m"), node("OneHot", "m depth values")]
    inputs = [value("x", [2, 3], TensorProto.INT64)]
    outputs = [value("m", [2, 3], TensorProto.INT64), value("y", [2, 3, 7])]
    constants = {"seven": np.array(7), "depth": np.array(7), "values": np.array([0, 1], "float32")}
    indices = np.array([[0, 8, 20], [6, 7, 3]])
    with more_operators:
        _, one_hot = run_imported(model(nodes, inputs, outputs, **constants), indices)
    assert one_hot.dtype == "float32"
    np.testing.assert_array_equal(one_hot, np.eye(7, dtype="float32")[indices % 7])


def test_a_pad_whose_pool_tells_positions_stays():
    nodes = [
        node("Relu", "x", "r"),
        node("Pad", "r pads", "p"),
        node("MaxPool", "p", "y i", kernel_shape=[2, 2]),
    ]
    made = make(nodes, (1, 1, 2, 2), outputs="y i", pads=ints(0, 0, 1, 1, 0, 0, 0, 0))
    counts = kinds(made)
    assert counts == {"relax.nn.relu": 1, "relax.nn.pad": 1, "relax.call_tir": 1}
