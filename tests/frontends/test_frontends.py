# SPDX-License-Identifier: Apache-2.0
"""Frontends: what they import, and the one sentence for what they cannot."""

import numpy as np
import onnx
import pytest
from onnx_graphs import FLOAT, model, node

import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm_droplet_ms import frontends
from tvm_droplet_ms.frontends import import_model, imported
from tvm_droplet_ms.frontends.extents import DeclaredInput, resolve_shapes
from tvm_droplet_ms.frontends.imported import InputSpec
from tvm_droplet_ms.frontends.integer_inputs import IntegerUse
from tvm_droplet_ms.session.errors import ModelError

IMAGE = DeclaredInput("image", ("batch", 3, "height", "width"))
MASK = DeclaredInput("mask", ("batch", "width"))
SOUND = DeclaredInput("sound", (2, None))
FREE = DeclaredInput("free", None)


def test_names_hold_for_all_inputs():
    dims = {"batch": 2, "height": np.int64(5), "width": 7}
    assert resolve_shapes([IMAGE, MASK], {}, dims) == {"image": [2, 3, 5, 7], "mask": [2, 7]}


def test_a_shape_gives_its_names_to_the_other_inputs():
    found = resolve_shapes([IMAGE, MASK], {"image": (2, 3, 5, 7)}, {})
    assert found == {"image": [2, 3, 5, 7], "mask": [2, 7]}


def test_shapes_may_break_with_a_name_that_the_model_uses_twice():
    found = resolve_shapes([IMAGE, MASK], {"image": (2, 3, 5, 7), "mask": (2, 9)}, {})
    assert found["mask"] == [2, 9]


def test_shapes_fill_what_has_no_name_or_no_rank():
    found = resolve_shapes([SOUND, FREE], {"sound": (2, 8), "free": (4,)}, {})
    assert found == {"sound": [2, 8], "free": [4]}


def test_all_that_is_missing_is_asked_for_at_once():
    with pytest.raises(ModelError) as raised:
        resolve_shapes([IMAGE, MASK, SOUND, FREE], {}, {"height": 5})
    text = str(raised.value)
    assert "input 'image' has the open shape (batch, 3, height, width)" in text
    assert "input 'sound' has the open shape (2, ?), input 'free' has no shape" in text
    assert "dims={'batch': 1, 'width': 224}, shapes={'sound': (2, 1), 'free': (" in text
    assert "--dim batch=1 --dim width=224 --shape sound=2,1 --shape free=" in text
    assert "\n" not in text and text.count("--dim") == 2


@pytest.mark.parametrize(
    ("shapes", "dims", "message"),
    [
        ({"imag": (1,)}, {}, "shapes names the input 'imag': the model has image, mask"),
        ({}, {"widht": 3}, "dims names the extent 'widht'.*leaves open batch, height, width"),
        ({"mask": (2, 7)}, {"batch": 3}, r"'mask' the shape \(2, 7\): the model has \(batch, w"),
        ({"mask": (2,)}, {}, r"'mask' the shape \(2,\): the model has \(batch, width\)"),
        ({"image": (2, 4, 5, 7)}, {}, "'image' the shape .*: the model has"),
        ({"mask": "2,7"}, {}, "'mask' the shape '2,7': expected a sequence"),
        ({"mask": 2}, {}, "'mask' the shape 2: expected a sequence"),
    ],
)
def test_what_does_not_fit_is_named(shapes, dims, message):
    with pytest.raises(ModelError, match=message):
        resolve_shapes([IMAGE, MASK], shapes, dims)


def test_dims_of_a_model_without_names_are_refused():
    with pytest.raises(ModelError, match="'batch', which no input has: none is open by name"):
        resolve_shapes([SOUND], {"sound": (2, 3)}, {"batch": 1})


@I.ir_module
class Dense:
    @R.function
    def forward(x: R.Tensor((1, 4), "float32"), weight: R.Tensor((4, 3), "float32")) -> R.Tensor(
        (1, 3), "float32"
    ):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            product = R.matmul(x, weight)
            R.output(product)
        return product


@I.ir_module
class Open:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        with R.dataflow():
            product = R.multiply(x, x)
            R.output(product)
        return product


@I.ir_module
class Half:
    @R.function
    def main(x: R.Tensor((2, 4), "float16")) -> R.Tensor((2, 4), "float16"):
        with R.dataflow():
            product = R.multiply(x, x)
            R.output(product)
        return product


def run(mod, *arrays):
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    return machine["main"](*map(tvm.runtime.tensor, arrays)).numpy()


def byte_module(is_product):
    builder = relax.BlockBuilder()
    image = relax.Var("image", relax.TensorType((4, 4), "float32"))
    with builder.function("main", [image]):
        with builder.dataflow():
            mask = builder.emit(relax.op.astype(relax.op.isnan(image), "int8"))
            if is_product:
                mask = builder.emit(relax.op.matmul(mask, mask, out_dtype="int32"))
            rows = builder.emit(relax.op.max(mask, axis=[-1], keepdims=True))
            out = builder.emit_output(relax.op.astype(rows, "float32"))
        builder.emit_func_output(out)
    return builder.get()


class TestRelax:
    def test_parameters_are_bound_and_the_only_function_becomes_main(self):
        weight = np.arange(12, dtype="float32").reshape(4, 3)
        model = import_model((Dense, {"weight": weight}))
        assert model.inputs == (InputSpec("x", (1, 4), "float32"),)
        x = np.array([[1, 2, 3, 4]], dtype="float32")
        np.testing.assert_allclose(run(model.mod, x), x @ weight)

    def test_an_unbound_parameter_is_named(self):
        with pytest.raises(ModelError, match="parameter 'weight' is not bound"):
            import_model(Dense)

    @pytest.mark.parametrize("options", [{"shapes": {"x": (3, 4)}}, {"dims": {"n": 3}}])
    def test_symbolic_extents_are_bound(self, options):
        assert import_model(Open, **options).inputs == (InputSpec("x", (3, 4), "float32"),)

    @pytest.mark.parametrize(
        ("model", "options", "words"),
        [
            (
                (Dense, {"wait": np.zeros(1)}),
                {},
                "'wait' is not one of the module's: expected x, w",
            ),
            (Open, {}, r"'x' has the symbolic shape \(n, 4\).*'x': \(1, 4\)"),
            (Open, {"shapes": {"x": (3, 5)}}, "shapes gives 'x' the shape"),
            (Open, {"shapes": {"x": (3,)}}, "shapes gives 'x' the shape"),
            (Half, {}, r"computes in float16 \(relax.multiply\)"),
            (Open, {"dims": {"m": 3}}, "dims names the extent 'm'.*it leaves open n"),
            (
                Open,
                {"dims": {"n": 3}, "constants": {"x": 1.0}},
                "constants names the input 'x': only inputs of ONNX",
            ),
            (3, {}, "model is a int: expected the path of an .onnx"),
            (type("Net", (), {"__module__": "relax.nets"})(), {}, "model is a Net: expected the"),
            (onnx.GraphProto(), {}, "model is a GraphProto: expected the path of an .onnx"),
            ("nowhere/model.onnx", {}, "does not exist"),
        ],
    )
    def test_what_does_not_fit_is_named(self, model, options, words):
        with pytest.raises(ModelError, match=words):
            import_model(model, **options)

    def test_virtual_devices_are_named(self):
        placed = tvm.IRModule({"main": Open["main"]})
        placed.update_global_info("vdevice", [relax.VDevice({"kind": "llvm"})])
        with pytest.raises(ModelError, match="virtual devices .*VDevice.*one CPU"):
            import_model(placed, {"x": (3, 4)})


class TestOther:
    @pytest.mark.parametrize("is_product", [False, True])
    def test_bytes_are_nobodys_business(self, is_product):
        """PyTorch exports the softmax of attention with a mask of bytes."""
        assert len(import_model(byte_module(is_product)).inputs) == 1

    def test_casts_at_the_borders_are_no_computation(self):
        builder = relax.BlockBuilder()
        image = relax.Var("image", relax.TensorType((4, 4), "float16"))
        with builder.function("main", [image]):
            with builder.dataflow():
                whole = builder.emit(relax.op.exp(relax.op.astype(image, "float32")))
                out = builder.emit_output(relax.op.astype(whole, "float16"))
            builder.emit_func_output(out)
        assert import_model(builder.get()).inputs[0].dtype == "float16"

    @pytest.mark.parametrize("extent", [-1, "N", 1.5, None, True])
    def test_an_extent_that_is_no_int_is_named(self, extent):
        with pytest.raises(ModelError, match=f"gives 'x' the extent {extent!r}: expected an int"):
            import_model(Open, {"x": (extent, 4)})
        with pytest.raises(ModelError, match=f"gives 'n' the extent {extent!r}: expected an int"):
            import_model(Open, dims={"n": extent})

    def test_outputs_without_elements_are_refused(self):
        with pytest.raises(ModelError, match="no output of the model has an element"):
            import_model(Open, {"x": (0, 4)})


class TestInputSpec:
    def test_random_inputs_have_the_shape_and_the_type(self):
        generator = np.random.default_rng(0)
        image = InputSpec("x", (2, 3), "float32").random(generator)
        assert image.shape == (2, 3) and image.dtype == np.float32 and image.std() > 0
        half = InputSpec("x", (200,), "bfloat16").random(generator).astype("float32")
        assert 0.8 < half.std() < 1.2
        tokens = InputSpec("t", (100,), "int64", IntegerUse(extent=7)).random(generator)
        assert tokens.dtype == np.int64 and set(tokens) == set(range(7))


class TestOnnx:
    def model(self):
        return model([node("Relu", "x")], [("x", FLOAT, [1, 3])], ("y", FLOAT, [1, 3]))

    def test_a_file_is_imported(self, tmp_path):
        path = tmp_path / "relu.onnx"
        onnx.save(self.model(), path)
        imported = import_model(path)
        x = np.array([[-1, 0, 2]], dtype="float32")
        assert imported.inputs == (InputSpec("x", (1, 3), "float32"),)
        np.testing.assert_array_equal(run(imported.mod, x), [[0, 0, 2]])
        assert imported.reference.name == "ONNX Runtime"
        np.testing.assert_array_equal(imported.reference.run([x])[0], [[0, 0, 2]])

    def test_a_file_that_is_no_model_is_named(self, tmp_path):
        path = tmp_path / "noise.onnx"
        path.write_bytes(b"no model at all")
        with pytest.raises(ModelError, match="noise.onnx' is no ONNX file"):
            import_model(path)

    def test_a_file_without_the_package_onnx_is_refused_in_a_sentence(self, tmp_path, monkeypatch):
        path = tmp_path / "model.onnx"
        path.write_bytes(b"")
        monkeypatch.setattr(frontends, "find_spec", lambda name: None)
        with pytest.raises(ModelError, match=r"needs the package onnx: pip install 'tvm-droplet"):
            import_model(str(path))


def test_a_large_program_of_pytorch_is_refused_before_it_is_read(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.export, "load", None)
    monkeypatch.setattr(imported, "free_memory", lambda: 8_000_000_000)
    path = tmp_path / "large.pt2"
    with path.open("wb") as file:
        file.truncate(4_000_000_000)
    # Four copies, the program, and the weights that PyTorch reads.
    with pytest.raises(ModelError, match=r"needs 20\.5 GB more memory .* 8\.0 GB are free"):
        import_model(path)


def test_what_is_no_program_of_pytorch_is_refused(tmp_path):
    torch = pytest.importorskip("torch")
    (tmp_path / "noise.pt2").write_bytes(b"nothing")
    layer = torch.nn.Linear(4, 3)
    for program, words in (
        ((layer, torch.zeros(2, 4)), r"call model.eval\(\) before"),
        (torch.nn.Linear(4, 3).eval(), "needs example inputs"),
        (tmp_path / "noise.pt2", "noise.pt2' is no file of torch.export.save"),
    ):
        with pytest.raises(ModelError, match=words):
            import_model(program)
