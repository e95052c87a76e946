# SPDX-License-Identifier: Apache-2.0
"""Modules and exported programs are taken: inputs, outputs, types, extents, caches."""

import copy

import numpy as np
import pytest
from compiling import Function, check, compiled, torch
from torch import nn

from tvm_droplet_ms.frontends import import_model
from tvm_droplet_ms.session.errors import ModelError


def random_inputs(imported):
    generator = np.random.default_rng(0)
    return [spec.random(generator) for spec in imported.inputs]


class TestInputs:
    def test_by_keyword(self):
        module = Function(lambda x, *, scale, shift=None: x * scale if shift is None else x + shift)
        imported = import_model((module.eval(), {"x": torch.randn(2), "scale": torch.randn(2)}))
        assert [spec.name for spec in imported.inputs] == ["x", "scale"]
        x, scale = random_inputs(imported)
        for run in (compiled(imported), imported.reference.run):
            np.testing.assert_allclose(run([x, scale])[0], x * scale, rtol=1e-6)

    def test_what_is_no_tensor_is_fixed(self):
        def forward(x, mask=None, power=2, is_shifted=False):
            return x**power + is_shifted if mask is None else x

        program = torch.export.export(
            Function(forward).eval(), (torch.randn(3), None, 3), {"is_shifted": True}
        )
        imported = import_model(program)
        (x,) = random_inputs(imported)
        for run in (compiled(imported), imported.reference.run):
            np.testing.assert_allclose(run([x])[0], x**3 + 1, rtol=1e-5)

    def test_without_axes(self):
        check(lambda x, y: x * y, torch.tensor(3.0), torch.randn(4))

    def test_something_else(self):
        with pytest.raises(
            ModelError, match="example inputs are a int: expected a tensor, a tuple"
        ):
            import_model((nn.Linear(4, 3).eval(), 3))


class TestOutputs:
    def test_nested_and_of_several_types(self):
        def forward(x):
            return {"b": x * 2, "a": [x > 0, (x.argmax(), torch.tensor(7))]}

        check(forward, torch.randn(5))

    def test_that_require_gradients(self):
        module = nn.Linear(3, 2)
        check(Function(lambda x: (x, module.weight + 0)), torch.randn(1, 3))
        with_parameter = nn.Module()
        with_parameter.weight = nn.Parameter(torch.randn(3))
        with_parameter.forward = lambda x: x * with_parameter.weight
        assert import_model((with_parameter.eval(), torch.randn(3))).reference.run(
            [np.ones(3, "f4")]
        )


class TestHalf:
    @pytest.mark.parametrize("kind", ["float16", "bfloat16"])
    def test_is_computed_in_float32(self, kind):
        dtype = getattr(torch, kind)
        module = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU()).to(dtype).eval()
        x = torch.randn(3, 64).to(dtype)
        imported = import_model((module, x))
        assert [(spec.name, spec.dtype) for spec in imported.inputs] == [("input", kind)]
        assert f"the model is of {kind}: it is computed in float32" in imported.notes[0]
        with torch.no_grad():
            expected = copy.deepcopy(module).float()(x.float()).to(dtype).float().numpy()
        import ml_dtypes

        array = x.float().numpy().astype(kind if kind == "float16" else ml_dtypes.bfloat16)
        for run in (compiled(imported), imported.reference.run):
            (found,) = run([array])
            assert str(found.dtype) == kind
            # Only the last rounding may differ.
            np.testing.assert_allclose(
                found.astype("f4"), expected, rtol=float(torch.finfo(dtype).eps), atol=1e-6
            )

    def test_parts_in_other_types(self):
        """A layer in float32 inside, as models of mixed types have it, and masks by its least."""

        def forward(x):
            mask = torch.full_like(x, torch.finfo(x.dtype).min).triu(1)
            return ((x.float() + mask).softmax(-1).to(x.dtype) @ x, x.sum())

        module = Function(forward).eval()
        imported = import_model((module, torch.randn(4, 4).half()))
        assert [str(a.dtype) for a in compiled(imported)(random_inputs(imported))] == [
            "float16"
        ] * 2


class TestOpenExtents:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
    def test_are_given_by_shapes(self, dtype):
        module = Function(lambda x: (x @ x.mT)[:, -1]).eval()
        extents = {0: {0: torch.export.Dim("n", min=2, max=9)}}
        program = torch.export.export(
            module, (torch.randn(3, 4, 5).to(dtype),), dynamic_shapes={"inputs": (extents[0],)}
        )
        (name,) = [spec for spec in program.graph_signature.user_inputs]
        imported = import_model(program, {name: (7, 4, 5)})
        (x,) = random_inputs(imported)
        (found,) = compiled(imported)([x])
        wide = x.astype("f4")
        np.testing.assert_allclose(found, (wide @ wide.swapaxes(1, 2))[:, -1], rtol=5e-3, atol=5e-3)

    def test_are_asked_for(self):
        extents = ({0: torch.export.Dim.AUTO},)
        program = torch.export.export(nn.ReLU(), (torch.randn(3, 4),), dynamic_shapes=extents)
        with pytest.raises(ModelError, match=r"has the open shape \(s\d+, 4\).* such as dims="):
            import_model(program)

    def program(self):
        """A sum of which one input has twice the rows of the other, which may have up to 9."""
        rows = torch.export.Dim("rows", min=4, max=9)
        module = Function(lambda inputs: inputs[0] + inputs[1][1::2]).eval()
        extents = ({0: rows}, {0: 2 * rows})
        inputs = ((torch.randn(4, 3), torch.randn(8, 3)),)
        return torch.export.export(module, inputs, dynamic_shapes={"inputs": (extents,)})

    def test_have_names_and_ranges(self):
        program = self.program()
        (name,) = (str(each) for each in program.range_constraints if each.is_Symbol)
        imported = import_model(program, dims={name: 5})
        assert [spec.extents for spec in imported.inputs] == [(name, None), ()]
        x, y = random_inputs(imported)
        assert x.shape == (5, 3) and y.shape == (10, 3)
        np.testing.assert_allclose(compiled(imported)([x, y])[0], x + y[1::2], rtol=1e-6)
        assert imported.output_extents == ((name, None),)
        with pytest.raises(ModelError, match=f"extent {name} is 10: .* exported for 4 to 9"):
            import_model(program, dims={name: 10})
        with pytest.raises(ModelError, match=f"'rows', which no input has.* open {name}"):
            import_model(program, dims={"rows": 5})

    def test_a_module_is_exported_for_the_shapes_that_are_given(self):
        table = nn.Embedding(6, 3)
        ids = torch.tensor([[1, 5]])
        imported = import_model((table.eval(), (ids,)), {"input": (2, 5)})
        assert imported.inputs[0].shape == (2, 5)
        with pytest.raises(ModelError, match=r"the model has \(1, 2\)"):
            import_model((table, (ids,)), {"input": (2,)})


class TestDecomposed:
    """Programs whose views fit the strides of PyTorch's own operators, before they are imported."""

    @pytest.mark.parametrize("is_masked", [False, True])
    @pytest.mark.parametrize(("batch", "rows", "width", "heads"), [(1, 7, 15, 3), (2, 4, 16, 2)])
    def test_attention(self, batch, rows, width, heads, is_masked):
        module = torch.nn.MultiheadAttention(width, heads, batch_first=True).eval()
        mask = torch.ones(rows, rows, dtype=torch.bool).triu(1) if is_masked else None

        def attend(x):
            return module(x, x, x, need_weights=False, attn_mask=mask)[0]

        x = torch.randn(batch, rows, width)
        with torch.no_grad():
            program = torch.export.export(Function(attend), (x,), strict=False)
            program = program.run_decompositions({})
            code = program.graph_module.code
            (found,) = compiled(import_model(program))([x.numpy()])
            np.testing.assert_allclose(found, attend(x).numpy(), rtol=1e-4, atol=1e-5)
        assert program.graph_module.code == code

    def test_a_view_that_is_written(self):
        def write(x):
            y = x.clone()
            y.view(6).add_(1)
            return y

        check(write, torch.randn(3, 2))


class TestTransformers:
    @pytest.fixture(autouse=True)
    def transformers(self):
        self.transformers = pytest.importorskip(
            "transformers", reason="transformers is not installed"
        )

    def small(self, kind, **config):
        cls = getattr(self.transformers, kind)
        tokens = dict(vocab_size=50, bos_token_id=1, eos_token_id=1, pad_token_id=0)
        return cls(cls.config_class(**tokens, **config)).eval()

    def inputs(self):
        mask = torch.ones(2, 6, dtype=torch.int64)
        mask[1, 4:] = 0
        return {"input_ids": torch.randint(2, 50, (2, 6)), "attention_mask": mask}

    def check(self, module, inputs):
        """Against the module itself, which returns a cache, too."""
        with torch.no_grad():
            expected = module(**inputs)[0].numpy()
        imported = import_model((module, inputs))
        (found,) = compiled(imported)([array.numpy() for array in inputs.values()])
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        return imported

    def test_gpt2(self):
        module = self.small("GPT2Model", n_embd=16, n_layer=1, n_head=2, n_positions=8)
        imported = self.check(module, self.inputs())
        assert "exported with config.use_cache = False" in imported.notes[0]
        assert module.config.use_cache

    def test_llama(self):
        module = self.small(
            "LlamaForCausalLM",
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            intermediate_size=16,
        )
        self.check(module, self.inputs())

    def test_an_encoder_has_no_cache(self):
        module = self.small(
            "BertModel",
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
        )
        assert import_model((module, self.inputs())).notes == ()
