# SPDX-License-Identifier: Apache-2.0
"""Converters beside ONNX Runtime or NumPy, on what ONNX's backend tests do not have."""

import numpy as np
import pytest
from onnx import TensorProto, helper, shape_inference

pytest.importorskip("onnxruntime")

from onnx_models import branch, node
from operator_runs import assert_same, assert_same_of, model_of, run_here

import tvm
from tvm import te
from tvm.s_tir import Schedule
from tvm_droplet_ms.frontends.onnx.importing import import_onnx
from tvm_droplet_ms.frontends.onnx.operators.nodes.pooling import _Windows
from tvm_droplet_ms.frontends.onnx.operators.nodes.signal import fourier_matrices
from tvm_droplet_ms.model.window_maxima import pool_with_positions
from tvm_droplet_ms.session.errors import ModelError

RNG = np.random.default_rng(0)


def normal(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("is_centered", [0, 1])
@pytest.mark.parametrize("most, overlap, score", [(3, 0.5, 0.3), (20, 0.2, None), (0, 0.5, 0.0)])
def test_boxes_are_selected_as_by_onnx_runtime(is_centered, most, overlap, score):
    rng = np.random.default_rng(most)
    boxes = rng.uniform(0, 1, (2, 12, 4)).astype(np.float32)
    boxes[0, 3] = boxes[0, 5]
    scores = rng.uniform(0, 1, (2, 3, 12)).astype(np.float32)
    scores[0, 1, 4] = scores[0, 1, 7]
    constants = {"most": np.array([most]), "overlap": np.array([overlap], np.float32)}
    if score is not None:
        constants["score"] = np.array([score], np.float32)
    names = " ".join(["boxes scores", *constants])
    select = node("NonMaxSuppression", names, center_point_box=is_centered)
    assert_same_of([select], {"boxes": boxes, "scores": scores}, **constants)


@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]},
        {"kernel_shape": [2, 2], "dilations": [2, 3], "storage_order": 1},
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "pads": [1, 1, 1, 1]},
        {"kernel_shape": [2, 3], "auto_pad": "SAME_UPPER"},
    ],
)
def test_the_positions_of_maxima_are_those_of_onnx_runtime(attributes):
    x = np.random.default_rng(1).integers(-5, 5, (2, 3, 7, 8)).astype(np.float32)
    assert_same_of([node("MaxPool", "x", "y i", **attributes)], {"x": x}, "y i")


def test_the_position_of_a_nan_is_one_of_the_tensor():
    """Another operator may write there; ONNX does not say what the maximum of a NaN is."""
    x = np.full((1, 1, 4, 4), np.nan, np.float32)
    pool = node("MaxPool", "x", "y i", kernel_shape=[2, 2], strides=[2, 2])
    _, positions = run_here(model_of([pool], {"x": x}, "y i"), {"x": x})
    np.testing.assert_array_equal(positions, [[[[0, 2], [8, 10]]]])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_maximum_of_infinities_has_a_position_in_its_window(dtype):
    x = np.full((2, 2, 3, 4), -np.inf, dtype)
    x[1, 0, 2, 1:] = np.finfo(dtype).min, -np.inf, 5
    pool = node("MaxPool", "x", "y i", kernel_shape=[2, 2], pads=[1, 1, 0, 0])
    found = run_here(model_of([pool], {"x": x}, "y i"), {"x": x})
    for one, other in zip(found, first_maxima(x, 2, 1), strict=True):
        np.testing.assert_array_equal(one, other)
    if dtype != "float16":  # ONNX Runtime has no kernel for it.
        assert_same_of([pool], {"x": x}, "y i", rtol=0, atol=0)


def first_maxima(x, kernel, padding):
    """The maxima of windows, and the positions of the first, with padding before each axis."""
    rows, columns = (extent + padding - kernel + 1 for extent in x.shape[2:])
    values = np.empty((*x.shape[:2], rows, columns), x.dtype)
    positions = np.empty(values.shape, np.int64)
    places = np.arange(x.size).reshape(x.shape)
    for n, c, row, column in np.ndindex(values.shape):
        axes = [slice(max(0, at - padding), at - padding + kernel) for at in (row, column)]
        window = x[(n, c, *axes)]
        values[n, c, row, column] = window.max()
        positions[n, c, row, column] = places[(n, c, *axes)].ravel()[window.argmax()]
    return values, positions


@pytest.mark.parametrize("storage_order", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_window_of_padding_alone_has_a_position_in_its_plane(dtype, storage_order):
    """Another operator may write there; ONNX does not say which one it is."""
    x = np.full((1, 2, 3, 3), 7, dtype)
    attributes = {"kernel_shape": [1, 1], "pads": [1] * 4, "storage_order": storage_order}
    pool = node("MaxPool", "x", "y i", **attributes)
    values, positions = run_here(model_of([pool], {"x": x}, "y i"), {"x": x})
    inner = np.s_[1:4, 1:4]
    for c in range(2):
        plane = np.arange(9).reshape(3, 3) + 9 * c
        np.testing.assert_array_equal(positions[0, c][inner], plane.T if storage_order else plane)
        np.testing.assert_array_equal(values[0, c][inner], x[0, c])
        assert positions[0, c].min() == 9 * c and positions[0, c].max() == 9 * c + 8
    assert values[0, 0, 0, 0] == (-np.inf if dtype == "float32" else -128)


def test_positions_are_the_same_where_they_are_vectorized():
    attributes = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    x = normal(1, 2, 7, 8)
    data = te.placeholder(x.shape, "float32", name="x")
    outputs = pool_with_positions(data, _Windows([7, 8], attributes))
    schedule = Schedule(te.create_prim_func([data, *outputs]))

    def run():
        arrays = [x, np.zeros((1, 2, 4, 4), np.float32), np.zeros((1, 2, 4, 4), np.int64)]
        tensors = [tvm.runtime.tensor(array) for array in arrays]
        tvm.compile(schedule.mod, "llvm")["main"](*tensors)
        return [tensor.numpy() for tensor in tensors[1:]]

    before = run()
    for block in ("max_pool", "positions"):
        schedule.vectorize(schedule.get_loops(schedule.get_sblock(block))[3])
    for one, other in zip(before, run()):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
        {"kernel_shape": [2, 2], "strides": [3, 2], "auto_pad": "SAME_LOWER"},
        {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1},
        {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1], "ceil_mode": 1},
    ],
)
def test_windows_of_pools_are_those_of_onnx_runtime(kind, attributes):
    x = np.random.default_rng(1).standard_normal((1, 2, 5, 6)).astype(np.float32)
    assert_same_of([node(kind, "x", **attributes)], {"x": x}, opset=19)


@pytest.mark.parametrize(
    ("extent", "attributes"),
    [
        (9, {"kernel_shape": [3], "strides": [4], "pads": [0, 1]}),
        (6, {"kernel_shape": [3], "strides": [2]}),
        (7, {"kernel_shape": [2], "strides": [3], "pads": [1, 1]}),
    ],
)
@pytest.mark.parametrize("kind", ["AveragePool", "LpPool", "MaxPool"])
def test_windows_that_reach_beyond_the_padding_are_those_of_onnx_runtime(kind, extent, attributes):
    x = np.arange(1, extent + 1, dtype=np.float32).reshape(1, 1, extent)
    assert_same_of([node(kind, "x", ceil_mode=1, **attributes)], {"x": x}, opset=19)


@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [1, 1], "auto_pad": "SAME_UPPER"},
        {"kernel_shape": [3, 3], "ceil_mode": 1},
        {"kernel_shape": [3, 3], "ceil_mode": 1, "count_include_pad": 1},
        {"kernel_shape": [3, 3], "ceil_mode": 1, "count_include_pad": 1, "pads": [1, 1, 1, 1]},
        {"kernel_shape": [2, 2], "ceil_mode": 1, "count_include_pad": 1, "pads": [1, 1, 1, 1]},
    ],
)
def test_averages_divide_by_what_onnx_runtime_divides_by(attributes):
    x = np.random.default_rng(1).standard_normal((1, 2, 6, 8)).astype(np.float32)
    assert_same_of([node("AveragePool", "x", strides=[2, 2], **attributes)], {"x": x}, opset=19)


def test_maxima_of_single_elements_take_the_first():
    """ONNX Runtime refuses it."""
    x = normal(1, 2, 4, 4)
    pool = node("MaxPool", "x", kernel_shape=[1, 1], strides=[2, 2], auto_pad="SAME_UPPER")
    (found,) = run_here(model_of([pool], {"x": x}), {"x": x})
    np.testing.assert_array_equal(found, x[:, :, ::2, ::2])


def test_a_quantized_convolution_is_exact():
    rng = np.random.default_rng(5)
    x = rng.integers(0, 256, (1, 4, 9, 9)).astype(np.uint8)
    constants = {
        "xs": np.float32(0.02),
        "xz": np.uint8(121),
        "w": rng.integers(-128, 128, (6, 2, 3, 3)).astype(np.int8),
        "ws": rng.uniform(0.001, 0.01, 6).astype(np.float32),
        "wz": np.zeros(6, np.int8),
        "ys": np.float32(0.05),
        "yz": np.uint8(100),
        "b": rng.integers(-900, 900, 6).astype(np.int32),
    }
    attributes = {"pads": [1, 1, 1, 1], "strides": [2, 2], "group": 2}
    convolution = node("QLinearConv", "x xs xz w ws wz ys yz b", **attributes)
    assert_same_of([convolution], {"x": x}, **constants)


def test_a_quantized_product_of_long_sums_is_exact():
    """Sums of 300 products of bytes are beyond what float32 has all integers of."""
    rng = np.random.default_rng(6)
    a = rng.integers(0, 256, (5, 300)).astype(np.uint8)
    constants = {
        "b": rng.integers(0, 256, (300, 7)).astype(np.uint8),
        "az": np.uint8(3),
        "bz": np.uint8(7),
    }
    assert_same_of([node("MatMulInteger", "a b az bz")], {"a": a}, rtol=0, atol=0, **constants)


def test_quantization_rounds_to_even_and_saturates():
    x = np.array([[-1000, -1.25, -0.75, -0.25, 0.25, 0.75, 1.25, 1000]], np.float32)
    nodes = [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z")]
    constants = {"s": np.float32(0.5), "z": np.int8(4)}
    assert_same_of(nodes, {"x": x}, "q y", rtol=0, atol=0, **constants)


@pytest.mark.parametrize("length, bins", [(8, 5), (7, 7)])
def test_the_matrices_of_a_fourier_transform_are_numpys(length, bins):
    x = RNG.standard_normal(length)
    real, imaginary = fourier_matrices(length, length, bins, False)
    np.testing.assert_allclose(x @ (real + 1j * imaginary), np.fft.fft(x)[:bins], atol=1e-12)
    real, imaginary = fourier_matrices(length, length, length, True)
    np.testing.assert_allclose(x @ (real + 1j * imaginary), np.fft.ifft(x), atol=1e-12)


@pytest.mark.parametrize("with_window", [True, False])
def test_a_short_time_transform_gives_what_onnx_runtime_gives(with_window):
    x = normal(2, 50, 1)
    window = {"w": np.hanning(16).astype(np.float32)} if with_window else {}
    names = ["x", "step", "w" if with_window else "", "length"]
    constants = {"step": np.int64(6), "length": np.int64(16), **window}
    stft = helper.make_node("STFT", names, ["y"])
    assert_same_of([stft], {"x": x}, rtol=1e-4, atol=1e-5, **constants)


def test_a_maximum_of_infinities_is_infinite():
    x = np.array([[-np.inf, -np.inf], [-np.inf, 3]], np.float32)
    nodes = [node("ReduceMax", "x", axes=[1], keepdims=0), node("Equal", "y low", "z")]
    assert_same_of(nodes, {"x": x}, "y z", low=np.float32(-np.inf))


def test_a_function_is_expanded_where_an_optional_input_is_not_given():
    """The inliner of ONNX asks for the type of an input that is not there."""
    fed = {"q": normal(3, 2, 2, 8), "k": normal(3, 2, 6, 8), "n": np.array([2, 4, 1])}
    attend = helper.make_node("Attention", ["q", "k", "k", "", "", "", "n"], ["y"], "attend")
    assert_same_of([attend], fed, opset=24, rtol=1e-4, atol=1e-5)


def test_a_branch_that_the_body_of_a_function_chooses_by_a_shape_is_taken():
    x = normal(2, 6, 4)
    crop = node("CenterCropPad", "x shape", axes=[1, 2])
    made = model_of([crop], {"x": x}, opset=18, shape=np.array([3, 8]))
    (found,) = run_here(made, {"x": x})
    np.testing.assert_array_equal(found[:, :, 2:6], x[:, 1:4])
    assert found.shape == (2, 3, 8) and not found[:, :, [0, 1, 6, 7]].any()


def test_an_unknown_branch_is_computed():
    x = np.array([1.0, -2.0], np.float32)
    branches = {
        "then_branch": branch("t", [node("Neg", "x", "a")], "a"),
        "else_branch": branch("e", [node("Exp", "x", "b")], "b"),
    }
    nodes = [
        node("ReduceSum", "x", "s", keepdims=0),
        node("Greater", "s zero", "c"),
        node("If", "c", **branches),
    ]
    for sign in (1, -1):
        assert_same_of(nodes, {"x": sign * x}, zero=np.float32(0))


@pytest.mark.parametrize(
    "nodes, outputs, constants, expected",
    [
        (
            [node("RandomNormalLike", "x", name="volume")],
            "y",
            {},
            "node 'volume' (RandomNormalLike) cannot be imported: the operator is not supported",
        ),
        ([node("RandomNormalLike", "x")], "y", {}, "the node that computes 'y' (RandomNormalLike)"),
        (
            [node("Relu", "x", channels_last=1, domain="com.microsoft", name="nhwc")],
            "y",
            {},
            "node 'nhwc' (Relu) has its channels last, which is not supported",
        ),
        ([node("Relu", "x", domain="mine")], "y", {}, "an operator of 'mine', which is not suppor"),
        (
            [node("Expand", "x shape", name="grow")],
            "y",
            {},
            "node 'grow' (Expand) cannot be imported: its input 'shape' is not const",
        ),
        # TVM rounds to this type in another way.
        (
            [
                node("Cast", "x", "q", to=TensorProto.FLOAT8E4M3FN, name="narrow"),
                node("Cast", "q", to=TensorProto.FLOAT),
            ],
            "y",
            {},
            "'narrow' (Cast) cannot be imported: it has a tensor of type float8",
        ),
        # TVM writes it into a library that it cannot load.
        (
            [node("Relu", "x"), node("Identity", "none", "z")],
            "y z",
            {"none": np.zeros((2, 0), np.float32)},
            "a constant of the shape (2, 0), and TVM cannot load",
        ),
        (
            [node("Dropout", "x ratio training")],
            "y",
            {"ratio": np.float32(0.5), "training": np.bool_(True)},
            "it drops at random",
        ),
    ],
    ids=[
        "operator",
        "no name",
        "layout",
        "domain",
        "run-time shape",
        "float8",
        "no elements",
        "dropout",
    ],
)
def test_what_cannot_be_imported_is_refused_by_its_name(nodes, outputs, constants, expected):
    fed = {"x": normal(2, 2)} | ({"shape": np.array([2, 2])} if "grow" in expected else {})
    made = model_of(nodes, fed, outputs, opset=19, **constants)
    made.opset_import.append(helper.make_opsetid("mine", 1))
    with pytest.raises(ModelError) as caught:
        run_here(made, fed)
    text = str(caught.value)
    begins = expected.startswith(("node ", "the node "))
    assert text.startswith(expected) if begins else expected in text
    assert "\n" not in text


def test_positions_in_a_sequence_are_counted_from_its_end():
    """TVM's importer inserts one place behind a negative position."""
    nodes = [
        node("SequenceConstruct", "a b", "s"),
        node("SequenceInsert", "s c back", "t"),
        node("ConcatFromSequence", "t", axis=0),
    ]
    fed = {name: np.array([n], np.float32) for n, name in enumerate("abc")}
    assert run_here(model_of(nodes, fed, back=np.int64(-1)), fed)[0].tolist() == [0, 2, 1]


def test_a_larger_output_of_an_unpooling_counts_positions_as_onnx_runtime_does():
    fed = {"x": normal(1, 1, 2, 2), "i": np.array([[[[5, 7], [13, 15]]]])}
    unpool = node("MaxUnpool", "x i shape", kernel_shape=[2, 2], strides=[2, 2])
    assert_same_of([unpool], fed, shape=np.array([1, 1, 5, 5]))


@pytest.mark.parametrize("reduction", ["none", "add", "max"])
def test_elements_are_written_to_computed_positions(reduction):
    fed = {"x": normal(3, 5), "i": np.array([[0, 2, 1, -1], [2, 0, 0, 1]]), "u": normal(2, 4)}
    scatter = node("ScatterElements", "x i u", axis=0, reduction=reduction)
    assert_same_of([scatter], fed, opset=18)


def detector(*after):
    """A convolution, beside a selection of boxes and what is made of it."""
    rng = np.random.default_rng(2)
    arrays = {"x": normal(1, 4, 6, 6), "boxes": rng.uniform(0, 1, (1, 9, 4)).astype(np.float32)}
    arrays["scores"] = rng.uniform(0, 1, (1, 2, 9)).astype(np.float32)
    constants = {"w": normal(8, 4, 3, 3), "most": np.array([4]), "axis": np.array([1])}
    constants |= {"overlap": np.array([0.3], np.float32), "score": np.array([0.2], np.float32)}
    constants |= {"begin": np.array([2]), "end": np.array([3]), "table": normal(9, 4)}
    selected = node("NonMaxSuppression", "boxes scores most overlap score", "selected")
    nodes = [node("Conv", "x w", "c", pads=[1] * 4), selected, *after]
    made = model_of(nodes, arrays, "y c", opset=13, **constants)
    return shape_inference.infer_shapes(made), arrays


def pixels(*after, opset=17, **constants):
    """The places of the positive outputs of a convolution."""
    fed = {"x": normal(1, 4, 6, 6)}
    nodes = [node("Conv", "x w", "c"), node("Relu", "c", "r"), node("NonZero", "r", "n"), *after]
    made = model_of(nodes, fed, w=normal(8, 4, 3, 3), opset=opset, **constants)
    return shape_inference.infer_shapes(made), fed


FLOATS = node("Cast", "n", "f", to=TensorProto.FLOAT)


@pytest.mark.parametrize(
    "made, arrays",
    [
        detector(node("Cast", "selected", to=TensorProto.FLOAT)),
        detector(node("Transpose", "selected", perm=[1, 0])),
        detector(
            node("Slice", "selected begin end axis", "column"),
            node("Squeeze", "column axis", "numbers"),
            node("Gather", "table numbers", axis=0),
        ),
        pixels(node("Transpose", "n", perm=[1, 0])),
        pixels(FLOATS, node("Pad", "f widths"), widths=np.array([0, 1, 0, 1])),
        pixels(FLOATS, node("Pad", "f", pads=[0, 1, 2, 1]), opset=10),
        pixels(
            node("OneHot", "n depth values", axis=1),
            depth=np.array(8),
            values=np.array([0, 1], np.float32),
        ),
    ],
    ids=["cast", "transpose", "gather", "nonzero", "pad", "pad of attributes", "one-hot"],
)
def test_tensors_of_unknown_shape_beside_a_convolution(made, arrays):
    assert_same(made, arrays, rtol=1e-4)


def test_sequences_of_known_lengths_in_a_batch_of_unknown_extent_are_reversed():
    nodes = [node("NonZero", "x", "n"), node("ReverseSequence", "n lengths")]
    ones = np.ones((2, 3), np.float32)
    assert_same_of(nodes, {"x": ones}, lengths=np.array([2, 1, 2, 0, 2, 1]))


def test_a_convolution_with_weights_of_unknown_extents_is_imported():
    axes = {"axes": np.array([0, 1]), "image": normal(1, 1, 4, 400)}
    after = [FLOATS, node("Unsqueeze", "f axes", "k"), node("Conv", "image k")]
    made, _ = pixels(*after, **axes)
    assert import_onnx(made).mod["main"].ret_ty.ndim == 4


@pytest.mark.parametrize("kind, sign", [("ReduceMax", -1), ("ReduceMin", 1)])
def test_an_extremum_of_the_largest_number_is_no_infinity(kind, sign):
    most = np.float32(sign * np.finfo(np.float32).max)
    infinite = np.float32(sign * np.inf)
    x = np.array([[most] * 3, [infinite] * 3, [infinite, most, infinite], [1, most, 3]], np.float32)
    x = np.concatenate([x, -x, np.full((1, 3), 1e-37, np.float32)])
    reduction = node(kind, "x", axes=[1], keepdims=0)
    assert_same_of([reduction], {"x": x}, opset=13, rtol=0, atol=0)


@pytest.mark.parametrize("is_last", [0, 1])
@pytest.mark.parametrize(
    "kind, values",
    [
        ("ArgMax", np.float32([-np.inf, np.finfo(np.float32).min])),
        ("ArgMin", np.float32([np.inf, np.finfo(np.float32).max])),
        ("ArgMax", np.float64([-np.inf, np.finfo(np.float64).min])),
        ("ArgMax", np.uint8([0, 255])),
        ("ArgMin", np.uint8([0, 255])),
        ("ArgMax", np.int8([-128, 127])),
        ("ArgMin", np.int8([-128, 127])),
        ("ArgMax", np.int32([-(2**31), 5])),
        ("ArgMin", np.int64([2**63 - 1, 5])),
    ],
)
def test_the_place_of_an_extremum_is_that_of_an_element(kind, values, is_last):
    """Of rows of one value each: of the number that the reduction begins with, and of another."""
    x = np.repeat(values[:, None], 3, axis=1)
    place = node(kind, "x", axis=1, keepdims=0, select_last_index=is_last)
    (found,) = run_here(model_of([place], {"x": x}), {"x": x})
    assert found.dtype == np.int64 and found.tolist() == [2 * is_last] * 2


@pytest.mark.parametrize("kind", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("options", [{}, {"axis": -2, "keepdims": 0}, {"select_last_index": 1}])
def test_places_of_extrema_are_those_of_onnx_runtime(kind, options):
    x = np.random.default_rng(3).integers(-2, 3, (3, 4, 5)).astype(np.float32)
    assert_same_of([node(kind, "x", **options)], {"x": x}, rtol=0, atol=0)
    assert_same_of([node(kind, "x", **options)], {"x": normal(3, 4, 5)}, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("axes", [[1], None])
def test_a_mean_of_integers_keeps_their_type_and_is_rounded_towards_zero(dtype, axes):
    x = np.array([[1, 2, 5], [-1, -2, -5], [-7, 0, 3]], dtype)
    given = {} if axes is None else {"axes": axes}
    assert_same_of([node("ReduceMean", "x", **given)], {"x": x}, rtol=0, atol=0)


def test_a_softmax_by_hand_of_a_masked_row_is_no_nan():
    x, least = normal(2, 3), np.finfo(np.float32).min
    nodes = [
        node("Add", "x mask", "s"),
        node("ReduceMax", "s", "m", axes=[-1]),
        node("Sub", "s m", "d"),
        node("Exp", "d", "e"),
        node("ReduceSum", "e axes", "t"),
        node("Div", "e t"),
    ]
    mask = np.array([[0] * 3, [least] * 3], np.float32)
    assert_same_of(nodes, {"x": x}, opset=13, mask=mask, axes=np.array([-1]))


@pytest.mark.parametrize(
    "start, end, step", [(4, 2, 1), (9, 12, 1), (-1, -3, 2), (1, 4, -1), (0, 5, -2), (4, -9, -2)]
)
def test_a_slice_that_ends_before_it_starts_is_empty(start, end, step):
    bounds = {"s": np.array([start]), "e": np.array([end]), "t": np.array([step])}
    nodes = [node("Slice", "x s e a t", "z"), node("Concat", "z x", axis=1)]
    assert_same_of(nodes, {"x": normal(6, 7)}, "z y", a=np.array([-1]), **bounds)


@pytest.mark.parametrize(
    "start, end", [(1, 4), (4, 2), (-3, 6), (2, 99), (-9, 2), (5, -1), (9, 12)]
)
def test_a_slice_with_computed_bounds(start, end):
    fed = {"x": normal(3, 6), "s": np.array([start]), "e": np.array([end])}
    assert_same_of([node("Slice", "x s e a")], fed, a=np.array([1]))


@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("way", ["half_pixel", "output_half_pixel"])
def test_regions_are_scaled_before_they_are_shifted(way, ratio):
    attributes = {"coordinate_transformation_mode": way, "sampling_ratio": ratio}
    attributes |= {"output_height": 3, "output_width": 2, "spatial_scale": 0.4}
    regions = np.array([[0, 0, 12, 12], [2, 4, 17, 15], [3, 3, 3, 3]], np.float32)
    fed = {"x": normal(2, 2, 8, 8), "r": regions}
    assert_same_of([node("RoiAlign", "x r b", **attributes)], fed, b=np.array([0, 1, 0]))


@pytest.mark.parametrize(
    "region", [[9, 9, 3, 4], [5, 5, 5, 9], [5, 5, 9, 5], [0, 0, 0, 0], [0, 0, 3, 1e-9]]
)
def test_a_region_without_area_is_zero(region):
    """No sample is taken, and TVM's kernel writes nothing."""
    attributes = {"output_height": 4, "output_width": 4, "spatial_scale": 0.5}
    fed = {"x": normal(1, 3, 32, 32), "r": np.array([[1, 2, 11, 9], region], np.float32)}
    nodes = [node("RoiAlign", "x r b", "z", **attributes), node("Exp", "z")]
    assert_same_of(nodes, fed, "z y", b=np.array([0, 0]), opset=16)


@pytest.mark.parametrize("reduction", ["none", "add"])
@pytest.mark.parametrize(
    "axis, shape", [(2, (2, 2, 4)), (0, (2, 3, 2)), (1, (1, 2, 3)), (1, (2, 3, 4))]
)
def test_indices_that_are_smaller_than_what_is_written_into(axis, shape, reduction):
    """TOPI's kernel takes their shape for that of the data."""
    extent = (2, 3, 4)[axis]
    places = np.argsort(
        np.random.default_rng(0).random((*shape[:axis], extent, *shape[axis + 1 :])), axis
    )
    places = np.take(places, range(shape[axis]), axis)  # Each place once.
    fed = {"x": normal(2, 3, 4), "i": places, "u": normal(*shape)}
    nodes = [node("ScatterElements", "x i u", axis=axis, reduction=reduction)]
    assert_same_of(nodes, fed, opset=18)


def test_zeros_are_quantized_with_a_scale_of_one():
    fed = {"x": np.zeros((3, 4), np.float32)}
    assert_same_of([node("DynamicQuantizeLinear", "x", "q s z")], fed, "q s z")


@pytest.mark.parametrize(
    "groups, kernel, is_constant", [(1, 3, True), (1, 3, False), (2, 3, True), (1, 17, True)]
)
def test_a_convolution_of_integers_is_exact_beyond_what_float32_is(groups, kernel, is_constant):
    rng = np.random.default_rng(7)
    x = rng.integers(250, 256, (1, 64 if kernel == 3 else 2, 18, 18)).astype(np.uint8)
    shape = (2, x.shape[1] // groups, kernel, kernel)
    fed = {"x": x, "w": rng.integers(250, 256, shape).astype(np.uint8)}
    constants = {"z": np.uint8(1)} | ({"w": fed.pop("w")} if is_constant else {})
    convolution = node("ConvInteger", "x w z", group=groups)
    assert_same_of([convolution], fed, rtol=0, atol=0, **constants)


def test_the_one_largest_element_needs_no_order():
    top = node("TopK", "x k", "y i", sorted=0, axis=0)
    assert_same_of([top], {"x": normal(3, 6)}, "y i", k=np.array([1]))


@pytest.mark.parametrize("opset, count", [(18, 2), (21, 6)])
def test_groups_far_from_zero_are_normalized(opset, count):
    """ONNX Runtime loses the digits far from zero: NumPy's float64 is the judge there."""
    x, s, b = normal(2, 6, 5, 4), normal(count), normal(count)
    norm = node("GroupNormalization", "x s b", num_groups=2)
    made = model_of([norm], {"x": x}, opset=opset, s=s, b=b)
    made.ir_version = 10
    assert_same(made, {"x": x}, atol=1e-5)
    far = x + 1000
    rows = far.astype(np.float64).reshape(2, 2, -1)
    centered = rows - rows.mean(-1, keepdims=True)
    unit = (centered / np.sqrt(rows.var(-1, keepdims=True) + 1e-5)).reshape(x.shape)
    scale, bias = (each.repeat(6 // count).reshape(6, 1, 1) for each in (s, b))
    np.testing.assert_allclose(run_here(made, {"x": far})[0], unit * scale + bias, atol=2e-3)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("B G H I D, B G H J D -> B G H I J", [(1, 2, 3, 4, 5), (1, 2, 3, 6, 5)]),
        ("...ij,...jk->...ik", [(2, 3, 4), (2, 4, 5)]),
        ("bij,kj", [(2, 3, 4), (5, 4)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
        ("ij,kl->ijkl", [(2, 3), (4, 5)]),
        ("ii->i", [(3, 3)]),
    ],
)
def test_sums_of_products_are_those_of_onnx_runtime(equation, shapes):
    inputs = {f"x{n}": normal(*shape) for n, shape in enumerate(shapes)}
    assert_same_of([node("Einsum", " ".join(inputs), equation=equation)], inputs)
