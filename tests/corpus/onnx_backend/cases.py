# SPDX-License-Identifier: Apache-2.0
"""The cases of ``onnx.backend.test``, and which of them a tuner of float networks answers for."""

import functools
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted")

FLOAT = "float32"
"""The cases that the bar is about: standard operators on tensors, one of them of float32."""

_NUMBERS = {
    TensorProto.FLOAT,
    TensorProto.DOUBLE,
    TensorProto.BOOL,
    *(getattr(TensorProto, f"{sign}INT{bits}") for sign in ("", "U") for bits in (8, 16, 32, 64)),
}


class Case(NamedTuple):
    """A backend test: a model, and the inputs and outputs of its data sets."""

    name: str
    model: onnx.ModelProto
    data_sets: list[tuple[list[Any], list[Any]]]
    rtol: float
    atol: float

    @property
    def operator(self) -> str:
        """The operator under test; that of the first node where there are several.

        The expansion of a function (``test_gelu_expanded``) goes by the name of the test.
        """
        nodes = [node for node in self.model.graph.node if node.op_type != "Constant"]
        if not nodes:
            return "Constant"
        if "_expanded" in self.name or len(nodes) > 1:
            return _by_test_name().get(self.name.partition("_expanded")[0], nodes[0].op_type)
        return str(nodes[0].op_type)

    @property
    def group(self) -> str:
        """The case's subject: FLOAT for those that count, or the reason that it does not count."""
        domains = {node.domain for node in self.model.graph.node} - {"", "ai.onnx"}
        if domains:
            return f"operators of {min(domains)}"
        values = [*self.model.graph.input, *self.model.graph.output]
        if any(not value.type.HasField("tensor_type") for value in values):
            return "sequences and optionals"
        types = {value.type.tensor_type.elem_type for value in values}
        if types - _NUMBERS:
            names = {TensorProto.DataType.Name(kind).lower() for kind in types - _NUMBERS}
            return f"type {min(names)}"
        return FLOAT if TensorProto.FLOAT in types else "other numbers"


@functools.cache
def load_cases() -> dict[str, Case]:
    """Load all cases by name. Takes 6 seconds: ONNX computes them."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [each for kind in KINDS for each in load_model_tests(kind=kind)]
    return {each.name: _load(each) for each in sorted(found, key=lambda each: str(each.name))}


def _load(test: Any) -> Case:
    if test.model is not None:
        data = [(_arrays(inputs), _arrays(outputs)) for inputs, outputs in test.data_sets]
        return Case(test.name, test.model, data, test.rtol, test.atol)
    folder = Path(test.model_dir)
    model = onnx.load(folder / "model.onnx")
    sets = sorted(folder.glob("test_data_set_*"))
    data = [(_read(each, "input", model), _read(each, "output", model)) for each in sets]
    return Case(test.name, model, data, test.rtol, test.atol)


def _arrays(values: Sequence[Any]) -> list[Any]:
    """Values of a data set, tensors of ONNX as arrays."""
    return [
        numpy_helper.to_array(value) if isinstance(value, TensorProto) else value
        for value in values
    ]


def _read(folder: Path, kind: str, model: onnx.ModelProto) -> list[Any]:
    """The tensors of one data set. None for what is no tensor."""
    values = getattr(model.graph, kind)
    found: list[Any] = []
    for index in range(len(list(folder.glob(f"{kind}_*.pb")))):
        if not values[index].type.HasField("tensor_type"):
            found.append(None)
            continue
        tensor = onnx.TensorProto()
        tensor.ParseFromString((folder / f"{kind}_{index}.pb").read_bytes())
        found.append(numpy_helper.to_array(tensor))
    return found


@functools.cache
def _by_test_name() -> dict[str, str]:
    """The operators of the tests of one node."""
    from onnx.backend.test.loader import load_model_tests

    return {
        each.name: each.model.graph.node[0].op_type
        for each in load_model_tests(kind="node")
        if len(each.model.graph.node) == 1
    }


_OF_A_LENGTH = ("BlackmanWindow", "ConstantOfShape", "HammingWindow", "HannWindow", "Range")


def with_parameters(case: Case) -> Case | None:
    """The case with what shapes its operators as constants, as exporters write it.

    A test of an operator feeds everything at run time, the axes of a ``ReduceSum`` and the shape of
    a ``Reshape`` included. Files have constants there, and a model of static shapes needs them.
    Constant become those inputs of a node whose type is not that of its first one (``axes``,
    ``shape``, ``k``, ``repeats``), all of what has a length (``Range``), and the limit of a
    ``Loop``; for the expansion of a function, those of the function. None if there is no such
    input, or several data sets.
    """
    names = [value.name for value in case.model.graph.input]
    constant = _parameters(case) & set(names)
    if (
        not constant
        or len(case.data_sets) != 1
        or any(value is None or isinstance(value, list) for value in case.data_sets[0][0])
    ):
        return None
    inputs, outputs = case.data_sets[0]
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    kept = [value for value in model.graph.input if value.name not in constant]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    left = []
    for name, value in zip(names, inputs):
        if name in constant:
            model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
        else:
            left.append(value)
    return case._replace(model=model, data_sets=[(left, outputs)])


def _parameters(case: Case) -> set[str]:
    """The inputs that shape the operators of a case."""
    base = load_cases().get(case.name.partition("_expanded")[0])
    model = case.model if base is None else base.model
    versions = {each.domain: each.version for each in model.opset_import}
    shaping, data = set(), set()
    for node in model.graph.node:
        if not onnx.defs.has(node.op_type, node.domain):
            continue
        schema = onnx.defs.get_schema(node.op_type, versions[node.domain], node.domain)
        formal = list(schema.inputs)
        for index, name in enumerate(node.input):
            each = formal[min(index, len(formal) - 1)]
            other = index > 0 and each.type_str != formal[0].type_str
            other |= node.op_type in _OF_A_LENGTH
            if node.op_type == "Loop":  # Its limit and its condition; what follows are its states.
                other = index < 2
            (shaping if other else data).add(name)
    return shaping - data


def shapes_of(case: Case) -> dict[str, tuple[int, ...]]:
    """The shapes of the first data set for the inputs whose shapes the model leaves open."""
    shapes = {}
    for value, array in zip(case.model.graph.input, case.data_sets[0][0]):
        dims = value.type.tensor_type.shape.dim
        if any(dim.dim_value <= 0 for dim in dims):
            shapes[value.name] = tuple(np.shape(array))
    return shapes
