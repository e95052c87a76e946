# SPDX-License-Identifier: Apache-2.0
"""The identity of a model: the same for other extents and options, another for another network."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_graphs import FLOAT, model, node

from tvm import relax
from tvm_droplet_ms.frontends import import_model
from tvm_droplet_ms.frontends.identity import _code, identify


def onnx_model(*, value=1.0, operator="Relu", strides=(1, 1), dtype=FLOAT):
    weights = np.full((4, 3, 3, 3), value, helper.tensor_dtype_to_np_dtype(dtype))
    nodes = [node("Conv", "x w", "h", strides=strides), node(operator, "h")]
    return model(nodes, [("x", dtype, ["batch", 3, 8, 8])], ("y", dtype, None), w=weights)


def relax_module(operator=relax.op.nn.relu, extent=4):
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((extent,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            sums = builder.emit(relax.op.add(x, relax.const(np.float32(1.0), "float32")))
            result = builder.emit_output(operator(sums))
        builder.emit_func_output(result)
    return builder.get()


def test_extents_do_not_matter_and_the_file_names_the_model(tmp_path):
    path = tmp_path / "net.onnx"
    onnx.save(onnx_model(), path)
    first = import_model(str(path), dims={"batch": 1}).identity
    assert first == import_model(str(path), dims={"batch": 2}).identity
    assert first.name == "net.onnx"
    assert import_model(onnx_model(), dims={"batch": 1}).identity.name == "model"


def test_weights_and_networks_differ_apart():
    first = identify(onnx_model())
    trained = identify(onnx_model(value=2.0))
    assert trained.network == first.network
    assert trained.weights != first.weights
    for other in (
        onnx_model(operator="Sigmoid"),
        onnx_model(strides=(2, 2)),
        onnx_model(dtype=TensorProto.DOUBLE),
    ):
        assert identify(other).network != first.network


def test_relax_modules_go_by_their_operators_and_parameters():
    first = identify(relax_module())
    assert identify(relax_module(extent=8)) == first
    assert identify(relax_module(relax.op.sigmoid)).network != first.network
    ones, twos = ({"w": np.full(100, value, "float32")} for value in (1, 2))
    assert identify(relax_module(), ones).weights != identify(relax_module(), twos).weights
    assert identify(relax_module(), ones).network != first.network


def test_modules_and_programs_of_pytorch():
    torch = pytest.importorskip("torch")

    class Plain(torch.nn.Module):
        def __init__(self, function):
            super().__init__()
            self.function = function
            self.layer = torch.nn.Linear(8, 8)

        def forward(self, x):
            return self.function(self.layer(x))

    torch.manual_seed(0)
    plain = Plain(torch.relu).eval()
    first, image = identify(plain), torch.zeros(2, 8)
    assert identify(plain) == first
    torch.nn.init.ones_(plain.layer.weight)
    assert identify(plain).network == first.network
    assert identify(plain).weights != first.weights
    assert identify(torch.nn.Linear(8, 9)).network != identify(torch.nn.Linear(8, 8)).network
    programs = [
        torch.export.export(Plain(function).eval(), (image,))
        for function in (torch.relu, torch.sigmoid)
    ]
    assert identify(programs[0]).network != identify(programs[1]).network


def test_values_that_inputs_are_bound_to_are_weights():
    made = model([node("Mul", "x k")], [("x", FLOAT, [2]), ("k", FLOAT, [])])
    first, same, other = (
        import_model(made, constants={"k": value}).identity for value in (2.0, 2.0, 3.0)
    )
    assert first == same
    assert other.network == first.network and other.weights != first.weights


def test_a_number_of_a_constant_node_is_a_weight():
    models = [
        model(
            [helper.make_node("Constant", [], ["k"], value_float=value), node("Mul", "x k")],
            [("x", FLOAT, [2])],
        )
        for value in (2.0, 3.0)
    ]
    first, other = map(identify, models)
    assert other.network == first.network and other.weights != first.weights


def test_the_bodies_of_functions_tell_networks_apart():
    def calling(kind):
        made = model([helper.make_node("f", ["x"], ["y"], domain="own")], [("x", FLOAT, [2])])
        opset = helper.make_opsetid("", 17)
        inner = helper.make_function("own", "f", ["a"], ["b"], [node(kind, "a", "b")], [opset])
        made.functions.append(inner)
        return made

    first, same, other = map(identify, map(calling, ("Relu", "Relu", "Sigmoid")))
    assert first == same
    assert first.network != other.network


def test_the_order_of_a_set_in_code_does_not_matter():
    def forward(x):
        return x in {0, 8}

    sets = [frozenset(values) for values in ([0, 8], [8, 0])]
    assert repr(sets[0]) != repr(sets[1])  # 0 and 8 have one place in a table of eight.
    first, same, other = (
        _code(forward.__code__.replace(co_consts=(None, ("a", each))))
        for each in (*sets, frozenset([0, 9]))
    )
    assert first == same
    assert first != other


def test_attributes_of_relax_operators_tell_networks_apart():
    first, other = (
        identify(relax_module(lambda x, negative=n: relax.op.nn.leakyrelu(x, negative)))
        for n in (0.1, 0.2)
    )
    assert first.network != other.network


def test_literals_in_the_code_of_a_module_tell_networks_apart():
    torch = pytest.importorskip("torch")

    class Doubled(torch.nn.Module):
        def forward(self, x):
            return x * 2

    class Tripled(torch.nn.Module):
        def forward(self, x):
            return x * 3

    class Rooted(torch.nn.Module):
        def forward(self, x):
            return x.sqrt()

    class Raised(torch.nn.Module):
        def forward(self, x):
            return x.exp()

    for kinds in ((Doubled, Tripled), (Rooted, Raised)):
        for kind in kinds:
            kind.__name__ = kind.__qualname__ = "Same"
        one, other = (kind().eval() for kind in kinds)
        assert identify(one).network != identify(other).network
        programs = [torch.export.export(kind().eval(), (torch.ones(2),)) for kind in kinds]
        first, second = map(identify, programs)
        assert (first.network, first.weights) != (second.network, second.weights)
