# SPDX-License-Identifier: Apache-2.0
"""Frontends: what they import, and the one sentence for what they cannot."""

import numpy as np
import pytest

import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm_droplet_ms.session.errors import ModelError
from tvm_droplet_ms.tuning import frontends
from tvm_droplet_ms.tuning.frontends import import_model
from tvm_droplet_ms.tuning.frontends.imported import InputSpec
from tvm_droplet_ms.tuning.frontends.integer_inputs import IntegerUse


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

    def test_an_unknown_parameter_is_named(self):
        with pytest.raises(ModelError, match="'wait' is not one of the module's: expected x, wei"):
            import_model((Dense, {"wait": np.zeros((4, 3), "float32")}))

    def test_a_symbolic_shape_asks_for_the_extents(self):
        with pytest.raises(ModelError, match=r"'x' has the symbolic shape \(n, 4\).*'x': \(1, 4\)"):
            import_model(Open)

    def test_shapes_bind_symbolic_extents(self):
        model = import_model(Open, {"x": (3, 4)})
        assert model.inputs == (InputSpec("x", (3, 4), "float32"),)

    @pytest.mark.parametrize("shape", [(3, 5), (3,), (3, 4, 1)])
    def test_a_shape_that_the_module_contradicts_is_named(self, shape):
        with pytest.raises(ModelError, match="shapes gives 'x' the shape"):
            import_model(Open, {"x": shape})

    def test_another_type_than_float32_is_named(self):
        with pytest.raises(ModelError, match=r"computes in float16 \(relax.multiply\)"):
            import_model(Half)

    def test_dims_bind_symbolic_extents_by_their_names(self):
        assert import_model(Open, dims={"n": 3}).inputs == (InputSpec("x", (3, 4), "float32"),)

    def test_an_unknown_dim_is_named(self):
        with pytest.raises(ModelError, match="dims names the extent 'm'.*it leaves open n"):
            import_model(Open, dims={"m": 3})

    def test_constants_are_for_onnx_models(self):
        with pytest.raises(ModelError, match="constants names the input 'x': only inputs of ONNX"):
            import_model(Open, dims={"n": 3}, constants={"x": 1.0})

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

    @pytest.mark.parametrize("extent", [-1, 0, "N", 1.5, None, True])
    def test_an_extent_that_is_no_positive_int_is_named(self, extent):
        with pytest.raises(ModelError, match=f"gives 'x' the extent {extent!r}: expected a pos"):
            import_model(Open, {"x": (extent, 4)})
        with pytest.raises(ModelError, match=f"gives 'n' the extent {extent!r}: expected a pos"):
            import_model(Open, dims={"n": extent})

    def test_something_else_is_named(self):
        with pytest.raises(ModelError, match="model is a int: expected the path of an .onnx"):
            import_model(3)

    def test_a_missing_file_is_named(self, tmp_path):
        with pytest.raises(ModelError, match="does not exist"):
            import_model(tmp_path / "model.onnx")


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
    @pytest.fixture(autouse=True)
    def onnx(self):
        self.onnx = pytest.importorskip("onnx")

    def model(self, extents, operator="Relu"):
        helper, kind = self.onnx.helper, self.onnx.TensorProto.FLOAT
        graph = helper.make_graph(
            [helper.make_node(operator, ["x"], ["y"])],
            "graph",
            [helper.make_tensor_value_info("x", kind, extents)],
            [helper.make_tensor_value_info("y", kind, extents)],
        )
        return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 13)])

    def test_a_file_is_imported(self, tmp_path):
        path = tmp_path / "relu.onnx"
        self.onnx.save(self.model([1, 3]), path)
        model = import_model(path)
        x = np.array([[-1, 0, 2]], dtype="float32")
        assert model.inputs == (InputSpec("x", (1, 3), "float32"),)
        np.testing.assert_array_equal(run(model.mod, x), [[0, 0, 2]])

    def test_onnx_runtime_is_the_reference(self):
        pytest.importorskip("onnxruntime")
        model = import_model(self.model([1, 3]))
        (output,) = model.reference.run([np.array([[-1, 0, 2]], dtype="float32")])
        assert model.reference.name == "ONNX Runtime"
        np.testing.assert_array_equal(output, [[0, 0, 2]])

    def test_an_open_extent_asks_for_the_shape(self):
        with pytest.raises(ModelError, match=r"'x' has the open shape \(batch, 3\).*--dim batch=1"):
            import_model(self.model(["batch", 3]))

    def test_a_given_shape_fills_an_open_extent(self):
        model = import_model(self.model(["batch", 3]), {"x": (5, 3)})
        assert model.inputs[0].shape == (5, 3)

    def test_a_shape_that_the_model_contradicts_is_named(self):
        with pytest.raises(ModelError, match=r"the shape \(5, 4\): the model has \(batch, 3\)"):
            import_model(self.model(["batch", 3]), {"x": (5, 4)})

    def test_an_unknown_input_is_named(self):
        with pytest.raises(ModelError, match="shapes names the input 'z': the model has x"):
            import_model(self.model([1, 3]), {"z": (1, 3)})

    def test_an_operator_that_the_frontend_lacks_is_named(self):
        with pytest.raises(ModelError, match="Squiggle.*; export the model without it"):
            import_model(self.model([1, 3], "Squiggle"))

    def test_a_file_that_is_no_model_is_named(self, tmp_path):
        path = tmp_path / "noise.onnx"
        path.write_bytes(b"no model at all")
        with pytest.raises(ModelError, match="noise.onnx' is no ONNX file"):
            import_model(path)


class TestTorch:
    @pytest.fixture(autouse=True)
    def torch(self):
        self.torch = pytest.importorskip("torch")

    def test_a_module_is_exported_and_pytorch_is_the_reference(self):
        module = self.torch.nn.Linear(4, 3).eval()
        model = import_model((module, self.torch.zeros(2, 4)))
        x = np.random.default_rng(0).standard_normal((2, 4)).astype("float32")
        (expected,) = model.reference.run([x])
        assert model.reference.name == "PyTorch"
        np.testing.assert_allclose(run(model.mod, x), expected, rtol=1e-5, atol=1e-6)

    def test_a_module_in_training_mode_is_refused(self):
        with pytest.raises(ModelError, match=r"call model.eval\(\) before"):
            import_model((self.torch.nn.Linear(4, 3), self.torch.zeros(2, 4)))

    def test_a_module_without_inputs_is_refused(self):
        with pytest.raises(ModelError, match="needs example inputs"):
            import_model(self.torch.nn.Linear(4, 3).eval())

    def test_a_file_that_is_no_program_is_named(self, tmp_path):
        path = tmp_path / "noise.pt2"
        path.write_bytes(b"nothing")
        with pytest.raises(ModelError, match="noise.pt2' is no file of torch.export.save"):
            import_model(path)


def test_a_file_without_the_package_onnx_is_refused_in_a_sentence(tmp_path, monkeypatch):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"")
    monkeypatch.setattr(frontends, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"needs the package onnx: pip install 'tvm-droplet-ms"):
        import_model(str(path))
