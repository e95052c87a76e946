# SPDX-License-Identifier: Apache-2.0
"""ONNX models as they come: imported, right, and refused in one sentence."""

from types import SimpleNamespace

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_graphs import FLOAT, INT, model, node

import tvm
from tvm import relax
from tvm.s_tir.meta_schedule.database import MemoryDatabase
from tvm.target import Target
from tvm_droplet_ms.frontends import import_model
from tvm_droplet_ms.frontends.imported import InputSpec
from tvm_droplet_ms.frontends.onnx.given_inputs import input_values
from tvm_droplet_ms.frontends.onnx.importing import import_onnx
from tvm_droplet_ms.frontends.onnx.operators import operands
from tvm_droplet_ms.frontends.onnx.reference import onnx_runtime
from tvm_droplet_ms.session.errors import ModelError
from tvm_droplet_ms.session.stop import StopRequest
from tvm_droplet_ms.tuning.agreement import Agreement
from tvm_droplet_ms.tuning.check.output_check import make_check
from tvm_droplet_ms.tuning.compile.lowering import lower
from tvm_droplet_ms.tuning.model_kernels import ModelKernels
from tvm_droplet_ms.tuning.run_context import PhaseTimer

pytest.importorskip("onnxruntime")

TARGET = Target({"kind": "llvm", "num-cores": 1})
RANDOM = np.random.default_rng(0)
FILTER = RANDOM.standard_normal((8, 3, 3, 3)).astype("float32")
IMAGE = ("x", FLOAT, [1, 3, 8, 8])
CONV = helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1])
SHAPE = helper.make_node("Shape", ["c"], ["s"])


def branch(name, inner):
    return helper.make_graph(inner, name, [], [helper.make_tensor_value_info(name, FLOAT, None)])


def compiled(mod, *arrays):
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    output = machine["main"](*map(tvm.runtime.tensor, arrays))
    return (
        [output.numpy()] if isinstance(output, tvm.runtime.Tensor) else [o.numpy() for o in output]
    )


def agreeing(imported, rtol=1e-4, atol=1e-4):
    """Run the import and its reference on random inputs; returns the outputs."""
    generator = np.random.default_rng(1)
    arrays = [spec.random(generator) for spec in imported.inputs]
    actual = compiled(imported.mod, *arrays)
    for one, other in zip(actual, imported.reference.run(arrays), strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_allclose(
            one.astype("float64"), other.astype("float64"), rtol=rtol, atol=atol
        )
    return actual


def slice_by_attributes():
    halves = [node("Slice", "x", "a", axes=[1], starts=[0], ends=[4])]
    halves += [node("Slice", "x", "b", axes=[1], starts=[-4], ends=[9999])]
    return model([*halves, node("Mul", "a b")], [("x", FLOAT, [2, 8])], opset=7)


def identity_of_shape():
    nodes = [CONV, SHAPE, node("Identity", "s", "t"), node("Slice", "t zero two", "head")]
    nodes += [node("Concat", "head rest", "new", axis=0), node("Reshape", "c new")]
    constants = {"zero": [0], "two": [2], "rest": [-1]}
    return model(nodes, [IMAGE], w=FILTER, **constants)


def reshape_by_computed_shape():
    nodes = [CONV, SHAPE, node("Cast", "s", "s32", to=TensorProto.INT32)]
    nodes += [node("Slice", "s32 zero one zero one", "n32"), node("Cast", "n32", "n", to=INT)]
    nodes += [node("Concat", "n rest", "new", axis=0), node("Reshape", "c new")]
    return model(nodes, [IMAGE], w=FILTER, zero=[0], one=[1], rest=[512])


def range_of_extent():
    nodes = [CONV, SHAPE, node("Gather", "s last", "n"), node("Cast", "n", "limit", to=FLOAT)]
    nodes += [node("Range", "first limit step", "r"), node("Add", "c r")]
    constants = {"last": np.int64(3), "first": np.float32(0), "step": np.float32(1)}
    return model(nodes, [IMAGE], w=FILTER, **constants)


def pad_by_computed_pads():
    nodes = [
        node("ConstantOfShape", "missing", "zeros", value=helper.make_tensor("v", INT, [1], [0])),
        node("Concat", "pads zeros", "all", axis=0),
        node("Reshape", "all pairs", "table"),
        node("Transpose", "table", "turned", perm=[1, 0]),
        node("Reshape", "turned flat", "widths"),
        node("Pad", "x widths", "p", mode="reflect"),
        node("Relu", "p"),
    ]
    constants = {"missing": [2], "pads": [0, 0], "pairs": [-1, 2], "flat": [-1]}
    return model(nodes, [("x", FLOAT, [2, 16])], **constants)


def if_on_shape():
    then, other = branch("t", [node("Squeeze", "c one", "t")]), branch("e", [node("Neg", "c", "e")])
    nodes = [node("Relu", "x", "c"), SHAPE, node("Gather", "s at", "n"), node("Equal", "n k", "b")]
    nodes += [node("If", "b", then_branch=then, else_branch=other)]
    return model(nodes, [("x", FLOAT, [4, 1, 6])], one=[1], at=np.int64(1), k=np.int64(1))


def unsorted():
    return model([node("Exp", "b"), node("Neg", "x", "b")], [("x", FLOAT, [2, 3])])


def one_hot():
    nodes = [node("OneHot", "x depth values", axis=-1)]
    constants = {"depth": np.int64(5), "values": np.array([0, 2], "float32")}
    return model(nodes, [("x", INT, [2, 3])], **constants)


@pytest.mark.parametrize(
    "make",
    [
        slice_by_attributes,
        identity_of_shape,
        reshape_by_computed_shape,
        range_of_extent,
        pad_by_computed_pads,
        if_on_shape,
        unsorted,
        one_hot,
    ],
)
def test_what_only_computes_shapes_refuses_no_model(make):
    imported = import_model(make())
    assert imported.reference.name == "ONNX Runtime" and imported.notes == ()
    agreeing(imported)


def test_dims_hold_for_all_inputs_and_names_are_those_of_the_model():
    inputs = [("in.1", FLOAT, ["batch", 3]), ("in_1", FLOAT, ["batch", "n"])]
    made = model([node("Concat", "in.1 in_1", axis=1)], inputs)
    imported = import_model(made, dims={"batch": 2, "n": 4})
    expected = (
        InputSpec("in.1", (2, 3), "float32", extents=("batch", None)),
        InputSpec("in_1", (2, 4), "float32", extents=("batch", "n")),
    )
    assert imported.inputs == expected
    assert agreeing(imported)[0].shape == (2, 7)


def test_an_input_without_a_shape_asks_for_one():
    made = model([node("MatMul", "x x")], [("x", FLOAT, None)])
    with pytest.raises(ModelError, match="input 'x' has no shape: pass .*--shape x="):
        import_model(made)
    assert agreeing(import_model(made, {"x": (2, 2)}))[0].shape == (2, 2)


def test_a_constant_decides_an_if_and_is_no_input():
    then, other = branch("t", [node("Exp", "x", "t")]), branch("e", [node("Neg", "x", "e")])
    made = model(
        [node("Equal", "sr k", "b"), node("If", "b", then_branch=then, else_branch=other)],
        [("x", FLOAT, [2, 3]), ("sr", INT, [])],
        k=np.int64(16000),
    )
    for rate, function in ((16000, np.exp), (8000, np.negative)):
        imported = import_model(made, constants={"sr": rate})
        assert [spec.name for spec in imported.inputs] == ["x"]
        x = np.ones((2, 3), "float32")
        np.testing.assert_allclose(imported.reference.run([x])[0], function(x), rtol=1e-6)
        np.testing.assert_allclose(compiled(imported.mod, x)[0], function(x), rtol=1e-6)


@pytest.mark.parametrize(
    ("constants", "message"),
    [
        ({"rate": 1}, "constants names the input 'rate': the model has x, sr"),
        ({"sr": "fast"}, "constants gives 'sr' the value 'fast'"),
        ({"sr": [1, 2]}, r"constants gives 'sr' a value of shape \(2,\): the model has \(\)"),
        ({"x": [[1.0, 2.0]]}, r"constants gives 'x' a value of shape \(1, 2\): the model has \(2"),
    ],
)
def test_a_constant_that_does_not_fit_is_named(constants, message):
    made = model([node("Mul", "x sr")], [("x", FLOAT, [2, 3]), ("sr", FLOAT, [])])
    with pytest.raises(ModelError, match=message):
        import_model(made, constants=constants)


@pytest.mark.parametrize(
    ("kind", "value", "is_held"),
    [
        (INT, 0.5, False),
        (INT, 2**63, False),
        (INT, float("nan"), False),
        (INT, 3.0, True),
        (TensorProto.UINT8, 300, False),
        (TensorProto.UINT8, -1, False),
        (TensorProto.BOOL, 2, False),
        (TensorProto.BOOL, 1, True),
        (FLOAT, 0.1, True),
    ],
)
def test_a_constant_that_the_type_does_not_hold_is_refused(kind, value, is_held):
    made = model([node("Cast", "k", "y", to=FLOAT)], [("k", kind, [])])
    values = {"k": value}
    if is_held:
        found = input_values(made, values, {})["k"]
        assert found.dtype == helper.tensor_dtype_to_np_dtype(kind) and found == found.dtype.type(
            value
        )
    else:
        with pytest.raises(ModelError, match="constants gives 'k' the value .*"):
            input_values(made, values, {})


def test_axes_that_are_an_input_are_to_be_bound():
    made = model([node("ReduceSum", "x axes")], [("x", FLOAT, [2, 3]), ("axes", INT, [1])])
    with pytest.raises(ModelError, match=r"bind it with constants=\{'axes': value\}"):
        import_model(made)
    imported = import_model(made, constants={"axes": [1]})
    x = np.ones((2, 3), "float32")
    np.testing.assert_allclose(compiled(imported.mod, x)[0], [[3], [3]])


def test_a_shape_that_is_an_input_is_to_be_bound():
    made = model([node("Reshape", "x shape")], [("x", FLOAT, [2, 6]), ("shape", INT, [2])])
    words = r"\(Reshape\) .* 'shape' is not constant, .* \(--constant shape=VALUE\)"
    with pytest.raises(ModelError, match=words):
        import_model(made)
    imported = import_model(made, constants={"shape": [3, 4]})
    x = np.arange(12, dtype="float32").reshape(2, 6)
    np.testing.assert_array_equal(compiled(imported.mod, x)[0], x.reshape(3, 4))


def test_a_scalar_fills_the_extent_that_the_shape_of_another_input_gives():
    made = model([node("Mul", "x k")], [("x", FLOAT, ["n", 3]), ("k", FLOAT, ["n", 1])])
    imported = import_model(made, shapes={"x": (2, 3)}, constants={"k": 5})
    x = np.ones((2, 3), "float32")
    np.testing.assert_allclose(compiled(imported.mod, x)[0], 5 * x, rtol=1e-6)
    with pytest.raises(ModelError, match=r"has \(n, 1\), so that a list of that shape"):
        import_model(made, constants={"k": 5})


@pytest.mark.parametrize(
    ("name", "rtol", "is_noted"),
    [("float16", 2e-3, True), ("bfloat16", 1e-2, True), ("float64", 1e-12, False)],
)
def test_a_model_of_other_types_has_them_at_its_borders(name, rtol, is_noted):
    """It is computed in float32 where that is of more bits."""
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    kind = helper.np_dtype_to_tensor_dtype(dtype)
    x, weight = (RANDOM.standard_normal(shape).astype(dtype) for shape in ((2, 8), (8, 4)))
    made = model([node("MatMul", "x w")], [("x", kind, [2, 8])], ("y", kind, None), w=weight)
    imported = import_model(made)
    assert imported.inputs[0].dtype == name
    words = f"the model is one of {name}: it is computed in float32"
    assert [note.startswith(words) for note in imported.notes] == [True] * is_noted
    expected = x.astype("float64") @ weight.astype("float64")
    for (found,) in (compiled(imported.mod, x), imported.reference.run([x])):
        assert found.dtype == dtype
        np.testing.assert_allclose(found.astype("float64"), expected, rtol=rtol, atol=rtol)
    if name == "float16":
        (fast,) = imported.reference.fastest([x])
        np.testing.assert_allclose(fast, expected, rtol=2e-2, atol=1e-2)


def test_a_quantized_model_is_imported():
    scales = {"xs": np.float32(0.05), "xz": np.uint8(128), "ws": np.float32(0.02)}
    scales["wz"] = np.int8(0)
    weight = RANDOM.integers(-127, 128, (8, 4)).astype("int8")
    nodes = [
        node("QuantizeLinear", "x xs xz", "q"),
        node("DequantizeLinear", "q xs xz", "d"),
        node("DequantizeLinear", "w ws wz", "v"),
        node("MatMul", "d v"),
    ]
    imported = import_model(model(nodes, [("x", FLOAT, [2, 8])], w=weight, **scales))
    # ONNX Runtime computes it as it is written: in integers it would round in another way.
    agreeing(imported)
    x = RANDOM.standard_normal((2, 8)).astype("float32")
    (fast,), (exact,) = imported.reference.fastest([x]), imported.reference.run([x])
    np.testing.assert_allclose(fast, exact, atol=0.2)


def test_the_untouched_model_is_the_reference_where_onnx_runtime_cannot_load_it():
    made = range_of_extent()
    made.ir_version = 30
    imported = import_model(made)
    assert imported.reference is None
    assert any(note.startswith("ONNX Runtime cannot load the model (") for note in imported.notes)


def test_the_simplified_model_is_its_own_reference_where_only_that_can_be_imported():
    made = reshape_by_computed_shape()
    # No converter has it, and nothing needs it.
    made.graph.node.append(node("RandomNormalLike", "x", "unused"))
    made.ir_version = 30
    imported = import_model(made)
    assert imported.reference is None and imported.original is None
    assert "only the simplified model can be imported: it is its own reference" in imported.notes


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (
            model([node("Squiggle", "x", name="odd")], [("x", FLOAT, [2])]),
            r"node 'odd' \(Squiggle\) .*; export the model without it",
        ),
        (
            model([node("CumSum", "x n", name="sums")], [("x", FLOAT, [2]), ("n", INT, [])]),
            r"node 'sums' \(CumSum\) cannot be imported: ",
        ),
        (
            model([node("Add", "x z", name="sum")], [("x", FLOAT, [2])]),
            r"graph is damaged: the node 'sum' \(Add\) reads the value 'z', which nothing",
        ),
        (
            model([node("Expand", "x shape")], [("x", FLOAT, [1, 8]), ("shape", INT, [2])]),
            r"input 'shape' decides it: .* \(--constant shape=VALUE",
        ),
        (
            model(
                [node("Cast", "x", "shape", to=INT), node("Expand", "data shape")],
                [("x", FLOAT, [2]), ("data", FLOAT, [1, 8])],
            ),
            "its extents depend on data: export the model with fixed",
        ),
        (
            model(
                [node("NonZero", "x", "n"), node("Shape", "n")],
                [("x", FLOAT, [4, 8])],
                ("y", INT, None),
            ),
            "an output of the model is the shape of a tensor",
        ),
    ],
)
def test_what_cannot_be_imported_is_one_sentence(made, message, capfd):
    with pytest.raises(ModelError, match=message) as raised:
        import_model(made)
    assert "\n" not in str(raised.value)
    printed = capfd.readouterr()
    assert printed.out == "" and "BlockBuilder" not in printed.err


def test_a_model_that_does_not_fit_into_a_protocol_buffer_goes_through_a_file(monkeypatch):
    from tvm_droplet_ms.frontends.onnx import reference as onnx_reference

    class Large:
        """As a model beyond 2 GB, which cannot be serialized."""

        def __init__(self, inner=None):
            self.inner = inner

        def SerializeToString(self):
            raise ValueError("too large")

        def CopyFrom(self, other):
            self.inner = onnx.ModelProto()
            self.inner.CopyFrom(other.inner)

    save = onnx.save_model
    monkeypatch.setattr(onnx, "save_model", lambda m, *a, **k: save(m.inner, *a, **k))
    weight = RANDOM.standard_normal((64, 64)).astype("float32")
    made = model([node("MatMul", "x w")], [("x", FLOAT, [2, 64])], w=weight)
    before = made.SerializeToString()
    from onnxruntime import InferenceSession

    session = onnx_reference._from_memory(Large(made), lambda source: InferenceSession(source))
    x = RANDOM.standard_normal((2, 64)).astype("float32")
    np.testing.assert_allclose(session.run(None, {"x": x})[0], x @ weight, rtol=1e-3, atol=1e-4)
    assert made.SerializeToString() == before


def test_weights_in_a_file_that_is_missing_are_named(tmp_path):
    weight = RANDOM.standard_normal((64, 64)).astype("float32")
    made = model([node("MatMul", "x w")], [("x", FLOAT, [2, 64])], w=weight)
    path = tmp_path / "model.onnx"
    onnx.save_model(made, path, save_as_external_data=True, location="weights")
    agreeing(import_model(path))
    (tmp_path / "weights").unlink()
    with pytest.raises(ModelError, match="has weights in other files, which cannot be read: .*w"):
        import_model(path)


def masked_by_lengths():
    """A model of speech: what lies beyond the length of an utterance is masked."""
    nodes = [
        node("ReduceMax", "x_lens", "most", keepdims=0),
        node("Range", "zero most one", "frames"),
        node("Unsqueeze", "x_lens one_axis", "lengths"),
        node("Less", "frames lengths", "mask"),
        node("Cast", "mask", "weights", to=FLOAT),
        node("Unsqueeze", "weights last", "column"),
        node("Mul", "x column", "masked"),
        node("MatMul", "masked w"),
    ]
    inputs = [("x", FLOAT, ["N", "T", 8]), ("x_lens", INT, ["N"])]
    return model(
        nodes,
        inputs,
        zero=np.int64(0),
        one=np.int64(1),
        one_axis=np.array([1]),
        last=np.array([2]),
        w=np.ones((8, 4), np.float32),
    )


def test_the_input_of_lengths_is_named_and_bound():
    dims = {"N": 1, "T": 20}
    with pytest.raises(ModelError) as refusal:
        import_model(masked_by_lengths(), dims=dims)
    text = str(refusal.value)
    assert "the input 'x_lens' decides it: bind it with constants={'x_lens': value}" in text
    assert "(--constant x_lens=VALUE)" in text
    assert "without it" not in text
    imported = import_model(masked_by_lengths(), dims=dims, constants={"x_lens": [20]})
    assert [spec.name for spec in imported.inputs] == ["x"]


def test_a_length_that_does_not_fit_asks_for_other_extents():
    with pytest.raises(ModelError) as refusal:
        import_model(masked_by_lengths(), dims={"N": 1, "T": 20}, constants={"x_lens": [10]})
    text = str(refusal.value)
    assert "relax.multiply" in text and "ArgumentInfo" not in text
    assert "pass other extents with dims= or shapes= (--dim, --shape)" in text


def test_a_kernel_of_unknown_extents_is_refused_where_nothing_can_be_bound():
    nodes = [
        node("NonZero", "x", "places"),
        node("Cast", "places", "numbers", to=FLOAT),
        node("Tile", "numbers repeats", "tiled"),
        node("Mul", "tiled row", "product"),
        node("MatMul", "product w"),
    ]
    weights = {"repeats": np.array([1, 2]), "row": np.ones((2, 3), np.float32)}
    made = model(nodes, [("x", FLOAT, [8])], w=np.ones((3, 4), np.float32), **weights)
    with pytest.raises(ModelError, match="extents depend on data, and TVM makes no"):
        lower(import_model(made).mod, TARGET)


def test_inputs_that_the_reference_refuses_are_asked_for():
    nodes = [node("Add", "index far", "place"), node("Gather", "table place")]
    table = np.ones((16, 4), np.float32)
    made = model(nodes, [("index", INT, [3])], table=table, far=np.int64(100))
    with pytest.raises(ModelError, match=r"ONNX Runtime cannot run .* inputs=\{name: array\}"):
        make_check(import_model(made), TARGET, 1e-4, 0)


def resized():
    """TVM rounds other positions than ONNX Runtime; before and after it nothing is special."""
    enlarge = {
        "mode": "nearest",
        "coordinate_transformation_mode": "half_pixel",
        "nearest_mode": "round_prefer_floor",
    }
    nodes = [
        node("Abs", "x", "a", name="before"),
        helper.make_node("Resize", ["a", "", "scales"], ["r"], name="enlarge", **enlarge),
        node("Relu", "r", name="after"),
    ]
    return model(nodes, [("x", FLOAT, [1, 1, 3, 3])], scales=np.float32([1, 1, 1.5, 1.5]))


def test_a_wrong_import_names_its_node_and_blames_no_pass(monkeypatch):
    # TVM's own converter, which has other pixels than ONNX Runtime.
    monkeypatch.delitem(operands._CONVERTERS, ("", "Resize"))
    imported = import_model(resized())
    check = make_check(imported, TARGET, 1e-4, 0)
    kernels, notes = ModelKernels(imported.mod, TARGET, MemoryDatabase()), []
    context = SimpleNamespace(phases=PhaseTimer(), note=notes.append)
    tuner = SimpleNamespace(context=context, kernels=lambda _: kernels, pick=lambda *_: None)
    agreement = Agreement(imported, [], check, tuner)
    message = (
        r"TVM's import of the model computes something else than ONNX Runtime, first at .*"
        r"'enlarge' \(Resize\): the outputs differ by .* before anything is tuned"
    )
    with pytest.raises(ModelError, match=message):
        agreement.first(StopRequest())
    assert not notes


@pytest.mark.parametrize("places", [[1, 5], [[0, 1], [2, 1]]], ids=["flat", "by axis"])
def test_a_sparse_weight_has_its_zeros(places):
    made = model([node("MatMul", "x w", "y")], [("x", FLOAT, [3, 3])], ("y", FLOAT, None))
    values = numpy_helper.from_array(np.array([2.0, 3.0], "float32"), "w")
    indices = numpy_helper.from_array(np.array(places, "int64"), "places")
    made.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [3, 2]))
    imported = import_onnx(made)
    assert [spec.name for spec in imported.inputs] == ["x"]
    (found,) = compiled(imported.mod, np.eye(3, dtype="float32"))
    np.testing.assert_array_equal(found, [[0, 2], [0, 0], [0, 3]])


def test_the_reference_adds_up_bytes_exactly():
    """Without VNNI ONNX Runtime would saturate sums of two products at 16 bits."""
    rng = np.random.default_rng(5)
    x = rng.integers(0, 256, (1, 4, 9, 9)).astype(np.uint8)
    constants = {
        "xs": np.float32(0.02),
        "xz": np.uint8(121),
        "w": rng.integers(-128, 128, (6, 4, 3, 3)).astype(np.int8),
        "ws": np.float32(0.005),
        "wz": np.int8(0),
        "ys": np.float32(0.05),
        "yz": np.uint8(100),
    }
    node = helper.make_node("QLinearConv", ["x", *constants], ["y"], pads=[1] * 4)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    whole = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    reference, problem = onnx_runtime(whole, ["x"], {}, 1)
    assert problem is None
    expected = ReferenceEvaluator(whole).run(None, {"x": x})
    np.testing.assert_array_equal(reference.run([x])[0], expected[0])
