# SPDX-License-Identifier: Apache-2.0
"""LSTM, GRU and RNN beside ONNX Runtime."""

import numpy as np
import pytest
from onnx import helper

pytest.importorskip("onnxruntime")

from operator_runs import assert_same, model_of, run_here

from tvm_droplet_ms.session.errors import ModelError

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def recurrent(
    kind,
    *,
    steps=5,
    batch=2,
    inputs=3,
    hidden=7,
    direction="bidirectional",
    bias=True,
    state=True,
    peephole=False,
    lengths=None,
    layout=0,
    **attributes,
):
    """Make a model of one node, and its inputs."""
    rng = np.random.default_rng(0)

    def draw(*shape):
        return (rng.standard_normal(shape) / max(shape[-1], 4) ** 0.5).astype(np.float32)

    gates, ways = GATES[kind], 2 if direction == "bidirectional" else 1
    first = (batch, ways, hidden) if layout else (ways, batch, hidden)
    weights = {"W": draw(ways, gates * hidden, inputs), "R": draw(ways, gates * hidden, hidden)}
    weights |= {"B": draw(ways, 2 * gates * hidden)} if bias else {}
    weights |= {"h": draw(*first)} if state else {}
    weights |= {"c": draw(*first)} if state and kind == "LSTM" else {}
    weights |= {"P": draw(ways, 3 * hidden)} if peephole else {}
    fed = {"X": draw(batch, steps, inputs) if layout else draw(steps, batch, inputs)}
    if lengths is not None:
        fed["lengths"] = np.array(lengths, np.int32)
    known = {*weights, *fed}
    order = ["X", "W", "R", "B", "lengths", "h", *(["c", "P"] if kind == "LSTM" else [])]
    names = [name if name in known else "" for name in order]
    outputs = ["y", "y_h", *(["y_c"] if kind == "LSTM" else [])]
    if layout:
        attributes["layout"] = 1
    node = helper.make_node(
        kind, names, outputs, "cell", hidden_size=hidden, direction=direction, **attributes
    )
    return model_of([node], fed, " ".join(outputs), opset=14, **weights), fed


@pytest.mark.parametrize(
    "kind, options",
    [
        ("LSTM", {}),
        ("LSTM", {"direction": "reverse", "batch": 1, "hidden": 16}),
        ("LSTM", {"direction": "forward", "bias": False, "state": False}),
        ("LSTM", {"peephole": True, "lengths": [2, 5]}),
        ("LSTM", {"clip": 0.3, "input_forget": 1}),
        ("LSTM", {"hidden": 40, "batch": 6, "activations": ["HardSigmoid", "Elu", "Softsign"] * 2}),
        # Above the work from which the tiles of a step run in parallel.
        ("LSTM", {"hidden": 200, "batch": 4, "direction": "forward", "steps": 3}),
        ("GRU", {}),
        ("GRU", {"lengths": [3, 1], "direction": "reverse"}),
        ("GRU", {"linear_before_reset": 1, "clip": 0.5}),
        ("GRU", {"linear_before_reset": 1, "bias": False, "lengths": [4, 2]}),
        ("RNN", {"lengths": [5, 3]}),
        ("LSTM", {"lengths": [0, 5]}),
        ("LSTM", {"lengths": [0, 0], "direction": "reverse"}),
        ("GRU", {"lengths": [5, 0]}),
        ("GRU", {"lengths": [0, 2], "linear_before_reset": 1, "direction": "forward"}),
        ("RNN", {"lengths": [0, 3]}),
        ("RNN", {"activations": ["Relu", "Sigmoid"]}),
        (
            "RNN",
            {
                "activations": ["Affine", "ScaledTanh"],
                "activation_alpha": [0.3, 0.7],
                "activation_beta": [0.1, 1.3],
            },
        ),
    ],
)
def test_a_cell_gives_the_outputs_of_onnx_runtime(kind, options):
    assert_same(*recurrent(kind, **options))


def test_a_batch_that_comes_first_gives_the_same_states():
    """ONNX Runtime has no such layout: the other one, with its axes exchanged."""
    for kind in GATES:
        made, fed = recurrent(kind, state=False)
        expected = run_here(made, fed)
        other, _ = recurrent(kind, state=False, layout=1)
        found = run_here(other, {"X": fed["X"].transpose(1, 0, 2)})
        np.testing.assert_allclose(found[0], expected[0].transpose(2, 0, 1, 3), atol=1e-6)
        np.testing.assert_allclose(found[1], expected[1].transpose(1, 0, 2), atol=1e-6)


def test_a_hundred_steps_are_one_kernel():
    from tvm_droplet_ms.frontends.onnx.importing import import_onnx

    made, _ = recurrent("LSTM", steps=100)
    functions = [variable.name_hint for variable in import_onnx(made).mod.get_global_vars()]
    assert sorted(functions) == ["lstm", "main"]


def test_saturated_gates_are_exact():
    """``1 - z`` of an update gate near 1 keeps its digits, as ONNX's own tests ask."""
    made, fed = recurrent("GRU", state=False, bias=False, batch=1)
    fed["X"] = np.full_like(fed["X"], 30.0)
    assert_same(made, fed, rtol=1e-3, atol=1e-7)


def test_an_activation_that_onnx_does_not_know_is_refused_by_name():
    made, _ = recurrent("RNN", activations=["Tanh", "Swish"])
    with pytest.raises(ModelError, match=r"'cell' \(RNN\) cannot be imported: .*'Swish'.*tanh"):
        run_here(made, {})
