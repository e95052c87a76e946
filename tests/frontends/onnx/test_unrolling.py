# SPDX-License-Identifier: Apache-2.0
"""Loops of known length, written out, against ONNX's reference implementation."""

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper
from onnx_models import copy, kinds, model, node, run, value

from tvm_droplet_ms.frontends.onnx import control_flow
from tvm_droplet_ms.frontends.onnx.folding import fold_constants

X = value("x", [3, 4])
INPUT = np.linspace(-1, 1, 12, dtype="float32").reshape(3, 4)


def body(nodes, inputs, outputs, **constants):
    initializers = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    return helper.make_graph(nodes, "body", inputs, outputs, initializers)


def counting(last):
    """A body: state = tanh(state * w + x[i]), scanned too; it goes on while i < last."""
    nodes = [
        node("Gather", "x i", "row"),
        node("Mul", "state w", "scaled"),
        node("Add", "scaled row", "sum"),
        node("Tanh", "sum", "next"),
        node("Exp", "next", "seen"),
        node("Less", "i last", "on"),
    ]
    inputs = [value("i", [], TensorProto.INT64), value("c", [], TensorProto.BOOL)]
    inputs += [value("state", [4])]
    outputs = [value("on", [], TensorProto.BOOL), value("next", [4]), value("seen", [4])]
    return body(nodes, inputs, outputs, w=np.float32(0.5), last=np.int64(last))


def loop(limit, goes_on, last=9):
    return node("Loop", f"{limit} {goes_on} start", "y z", body=counting(last))


CONSTANTS = {
    "start": np.ones(4, "float32"),
    "three": np.int64(3),
    "huge": np.int64(2**63 - 1),
    "yes": np.array(True),
}


def expected(steps):
    state, seen = np.ones(4, "float32"), []
    for step in range(steps):
        state = np.tanh(state * np.float32(0.5) + INPUT[step])
        seen.append(np.exp(state))
    return state, np.array(seen)


@pytest.mark.parametrize(
    ("limit", "goes_on", "last", "steps"),
    [
        ("three", "yes", 9, 3),
        ("three", "", 9, 3),
        ("", "yes", 1, 2),
        ("three", "yes", 0, 1),
        ("huge", "yes", 1, 2),
    ],
)
def test_a_loop_of_known_length_is_written_out(limit, goes_on, last, steps):
    made = model([loop(limit, goes_on, last)], [X], ["y", "z"], **CONSTANTS)
    fold_constants(made)
    assert "Loop" not in kinds(made) and kinds(made).count("Tanh") == steps
    for actual, wanted in zip(run(made, x=INPUT), expected(steps), strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-6)


def test_two_loops_are_two():
    nodes = [loop("three", "yes"), node("Loop", "three yes y", "s t", body=counting(1))]
    made = model([*nodes, node("Add", "s y", "u")], [X], ["u", "t", "z"], **CONSTANTS)
    before = run(made, x=INPUT)
    fold_constants(made)
    assert kinds(made).count("Tanh") == 5
    for actual, wanted in zip(run(made, x=INPUT), before, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-6)


def test_a_loop_without_a_step_hands_its_state_on():
    made = model([loop("zero", "yes")], [X], ["y"], zero=np.int64(0), **CONSTANTS)
    fold_constants(made)
    assert "Loop" in kinds(made)  # The extents of what it scans are those of no element.
    only = node("Loop", "zero yes start", "y", body=body(*without_scan()))
    made = model([only], [X], ["y"], zero=np.int64(0), **CONSTANTS)
    fold_constants(made)
    assert "Loop" not in kinds(made)
    np.testing.assert_array_equal(run(made, x=INPUT)[0], np.ones(4))


def without_scan():
    inputs = [value("i", [], TensorProto.INT64), value("c", [], TensorProto.BOOL)]
    nodes = [node("Identity", "c", "on"), node("Tanh", "state", "next")]
    outputs = [value("on", [], TensorProto.BOOL), value("next", [4])]
    return nodes, [*inputs, value("state", [4])], outputs


def test_a_loop_that_data_ends_stays_as_it_was():
    decided = counting(9)
    del decided.node[-1]
    decided.node.extend([node("ReduceMax", "next", "m", keepdims=0), node("Less", "m w", "on")])
    nodes = [node("Identity", "x", "h"), node("Loop", "three yes start", "y z", body=decided)]
    made = model([*nodes, node("Add", "y h", "u")], [X], ["u"], **CONSTANTS)
    before = copy(made)
    fold_constants(made)
    assert kinds(made) == ["Loop", "Add"]
    np.testing.assert_array_equal(run(made, x=INPUT)[0], run(before, x=INPUT)[0])


def test_a_long_loop_that_its_limit_ends_is_not_begun(monkeypatch):
    """Each step would copy the body's weights."""
    monkeypatch.setattr(control_flow, "NODES", 3)
    nodes, inputs, outputs = without_scan()
    written = []
    monkeypatch.setattr(control_flow.Unroller, "_copy", lambda *step: written.append(step))
    kept = node("Loop", "huge yes start", "y", body=body(nodes, inputs, outputs))
    fold_constants(model([kept], [X], ["y"], **CONSTANTS))
    assert written == []


@pytest.mark.parametrize("most", [10, 17])
def test_a_loop_that_is_too_long_stays(monkeypatch, most):
    monkeypatch.setattr(control_flow, "NODES", most)
    for limit in ("three", ""):
        made = model([loop(limit, "yes", 2)], [X], ["y", "z"], **CONSTANTS)
        fold_constants(made)
        assert kinds(made) == ["Loop"]


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({}, INPUT),
        ({"scan_input_directions": [1]}, INPUT[::-1]),
        ({"scan_input_axes": [1], "scan_output_axes": [1]}, INPUT.T),
        ({"scan_input_axes": [-1], "scan_output_directions": [1]}, INPUT.T),
    ],
)
def test_a_scan_is_written_out(options, rows):
    size = rows.shape[1]
    nodes = [
        node("Add", "state row", "sum"),
        node("Tanh", "sum", "next"),
        node("Exp", "sum", "seen"),
    ]
    step = body(
        nodes,
        [value("state", [size]), value("row", [size])],
        [value("next", [size]), value("seen", [size])],
    )
    scan = node("Scan", "start x", "y z", num_scan_inputs=1, body=step, **options)
    made = model([scan], [X], ["y", "z"], start=np.ones(size, "float32"))
    fold_constants(made)
    assert "Scan" not in kinds(made)
    state, seen = np.ones(size, "float32"), []
    for row in rows:
        seen.append(np.exp(state + row))
        state = np.tanh(state + row)
    if "scan_output_directions" in options:
        seen = seen[::-1]
    y, z = run(made, x=INPUT)
    np.testing.assert_allclose(y, state, rtol=1e-6)
    np.testing.assert_allclose(
        z, np.stack(seen, options.get("scan_output_axes", [0])[0]), rtol=1e-6
    )
