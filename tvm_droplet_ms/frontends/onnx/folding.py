# SPDX-License-Identifier: Apache-2.0
"""Fold the parts of an ONNX graph that depend only on constants and static shapes.

TVM's importer refuses much of the shape arithmetic that exporters write, and an ``If`` compiles
only if both branches have the same shape. Once the extents of all inputs are known, the arithmetic
and the conditions are constants.
"""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from copy import deepcopy
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto

from .control_flow import Steps, UnknownLength, Unroller, rename, take_branch
from .evaluation import evaluate_node, extents_of, is_quantized_weight
from .mapped import array_of_tensor
from .opset import OLDEST_SCAN
from .order import is_standard, names_in, reads, subgraphs

Array = np.ndarray[Any, Any]

RANDOM = {
    "Bernoulli",
    "Dropout",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}

GROWTH_BYTES = 1 << 24
"""A node is not folded if its outputs exceed its inputs by more bytes than this."""


def fold_constants(model: ModelProto) -> None:
    """Fold a model in place; its nodes must be in order and its inputs' shapes known.

    - A node whose inputs are all constants becomes constants, and so do ``Shape`` and ``Size`` of
      values of static shape. Random nodes stay, and so do nodes that enlarge a constant by more
      than ``GROWTH_BYTES``.
    - An ``If`` of constant condition becomes its taken branch.
    - ``Loop`` and ``Scan`` of known length are unrolled, up to ``NODES`` nodes.
    - ``Identity`` and ``Dropout`` are removed, and so are unused nodes and initializers.

    ``model`` is changed. Its constants are initializers afterwards.
    """
    before = deepcopy(model)
    try:
        _Folding(model, unrolls=True).run()
    except UnknownLength:
        model.CopyFrom(before)
        _Folding(model, unrolls=False).run()


class _Folding:
    """One pass over the nodes of the main graph, with the known constants and types."""

    def __init__(self, model: ModelProto, *, unrolls: bool) -> None:
        self._graph = model.graph
        self._types = StaticTypes(model)
        self._opsets = {each.domain: each.version for each in model.opset_import}
        self._opsets.setdefault("", self._opsets.get("ai.onnx", 1))
        self._outputs = {value.name for value in self._graph.output}
        self._constants: dict[str, TensorProto] = {}
        self._arrays: dict[str, Array] = {}
        self._same_as: dict[str, str] = {}
        self._copies: Counter[str] = Counter()
        self._names = names_in(self._graph)
        for tensor in self._graph.initializer:
            self._add_constant(tensor)
        self._kept: list[NodeProto] = []
        self._unroller = Unroller(self._new_name) if unrolls else None

    def run(self) -> None:
        """Fold, and write the result into the model."""
        self._uses = Counter(name for node in self._graph.node for name in reads(node))
        self._uses.update(self._outputs)
        nodes = deque(self._graph.node)
        while nodes:
            node = nodes.popleft()
            rename(node, self._same_as)
            inner = self._opened(node)
            if inner is not None:
                nodes.extendleft(reversed(inner))
            elif not (self._drop(node) or self._fold(node)):
                self._types.infer(node, self._constants)
                self._kept.append(node)
        self._write()

    def _add_constant(self, tensor: TensorProto) -> None:
        self._constants[tensor.name] = tensor
        self._names.add(tensor.name)
        self._types.add_constant(tensor)

    def _array(self, name: str) -> Array:
        if name not in self._arrays:
            tensor = self._constants[name]
            self._arrays[name] = array_of_tensor(tensor)
        return self._arrays[name]

    def _new_name(self, name: str) -> str:
        new = name
        while new in self._names:
            self._copies[name] += 1
            new = f"{name}_{self._copies[name]}"
        self._names.add(new)
        return new

    def _opened(self, node: NodeProto) -> list[NodeProto] | None:
        """Return the nodes that replace an ``If``, ``Loop`` or ``Scan``. None if not known."""
        if not is_standard(node):
            return None
        if node.op_type == "If":
            condition = self._scalar(node.input[0])
            if condition is None:
                return None
            steps = take_branch(node, bool(condition), self._new_name)
        else:
            found = self._unrolled(node)
            if found is None:
                return None
            steps = found
        for tensor in steps.constants:
            self._add_constant(tensor)
        self._uses.update(name for inner in steps.nodes for name in reads(inner))
        return steps.nodes

    def _unrolled(self, node: NodeProto) -> Steps | None:
        if self._unroller is None:
            return None
        if node.op_type == "Loop":
            limit, condition = node.input[0], node.input[1]
            count, goes_on = self._scalar(limit), self._scalar(condition)
            if limit and count is None:
                return self._unroller.loop(node, None, None)
            return self._unroller.loop(
                node,
                None if count is None else int(count),
                (None if goes_on is None else bool(goes_on)) if condition else True,
            )
        if node.op_type == "Scan" and self._opsets[""] >= OLDEST_SCAN:
            attributes = {each.name: each for each in node.attribute}
            count = attributes["num_scan_inputs"].i
            shapes = [self._types.shape(name) for name in node.input[-count:]]
            known = [shape for shape in shapes if shape is not None]
            axes = attributes["scan_input_axes"].ints if "scan_input_axes" in attributes else []
            if len(known) == count:
                length = known[0][axes[0] if axes else 0]
                return self._unroller.scan(node, [len(shape) for shape in known], length)
        return None

    def _scalar(self, name: str) -> Any:
        """The single element of a constant. None if the value is not constant."""
        return self._array(name).reshape(-1)[0] if name in self._constants else None

    def _drop(self, node: NodeProto) -> bool:
        """Drop a node that passes its first input on. Return whether it was dropped."""
        if not is_standard(node) or not self._hands_on(node):
            return False
        output, source = node.output[0], node.input[0]
        if output in self._outputs:
            return False
        self._same_as[output] = source
        return True

    def _hands_on(self, node: NodeProto) -> bool:
        if node.op_type == "Identity":
            return True
        if node.op_type != "Dropout":
            return False
        if any(self._uses[name] for name in node.output[1:]):
            return False
        if len(node.input) > 2 and node.input[2]:
            training = node.input[2]
            return training in self._constants and not self._array(training).any()
        return not any(each.name == "is_test" and each.i == 0 for each in node.attribute)

    def _fold(self, node: NodeProto) -> bool:
        """Fold a node into constants. Return whether it was folded."""
        outputs = self._values(node)
        if outputs is None:
            return False
        for name, value in outputs.items():
            self._arrays[name] = value
            self._add_constant(onnx.numpy_helper.from_array(value, name))
        return True

    def _values(self, node: NodeProto) -> dict[str, Array] | None:
        if not is_standard(node) or node.op_type in RANDOM or any(True for _ in subgraphs(node)):
            return None
        if node.op_type in ("Shape", "Size") and (extents := self._types.shape(node.input[0])):
            return {node.output[0]: extents_of(node, extents)}
        names = [name for name in node.input if name]
        if any(name not in self._constants for name in names):
            return None
        if names and is_quantized_weight(node, self._array(names[0])):
            return None
        if node.op_type != "Constant" and self._grows(node, names):
            return None
        return evaluate_node(node, {name: self._array(name) for name in names}, self._opsets)

    def _grows(self, node: NodeProto, names: Sequence[str]) -> bool:
        self._types.infer(node, self._constants)
        size = 0
        for name in node.output:
            shape, kind = self._types.shape(name), self._types.element_type(name)
            if shape is not None and kind:
                item = onnx.helper.tensor_dtype_to_np_dtype(kind).itemsize
                size += int(np.prod(shape, dtype=np.int64)) * item
        return size > GROWTH_BYTES + sum(self._array(name).nbytes for name in names)

    def _write(self) -> None:
        """Write the used nodes and constants into the model."""
        used = set(self._outputs)
        nodes = []
        for node in reversed(self._kept):
            if any(name in used for name in node.output):
                nodes.append(node)
                used |= reads(node)
        constants = [tensor for name, tensor in self._constants.items() if name in used]
        del self._graph.node[:]
        self._graph.node.extend(reversed(nodes))
        del self._graph.initializer[:]
        self._graph.initializer.extend(constants)
        # The stated types may be of removed values, or of unknown extents.
        del self._graph.value_info[:]


DATA_ELEMENTS = 4096
"""Larger constants are not shapes: ONNX's inference does not get their values."""


class StaticTypes:
    """Types of values by name.

    ONNX's inference over a whole model does not see constants that are still to be folded. This
    class runs the inference of each operator in turn, once its inputs are known. ``model``: the
    model. The types of its inputs are known from the start.
    """

    def __init__(self, model: ModelProto) -> None:
        self._opsets = list(model.opset_import)
        versions = {each.domain: each.version for each in self._opsets}
        self._versions = {"": versions.get("ai.onnx", 1), **versions}
        self._ir_version = model.ir_version or 8
        self._types = {value.name: value.type for value in model.graph.input}
        self._stated = {
            value.name: value.type for value in [*model.graph.value_info, *model.graph.output]
        }

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a value. None if it is not a tensor of known extents."""
        kind = self._types.get(name)
        if kind is None or not kind.tensor_type.HasField("shape"):
            return None
        extents = kind.tensor_type.shape.dim
        if not all(extent.HasField("dim_value") for extent in extents):
            return None
        return tuple(int(extent.dim_value) for extent in extents)

    def element_type(self, name: str) -> int:
        """Return ONNX's number of a value's element type. 0 if it is not known."""
        kind = self._types.get(name)
        return 0 if kind is None else int(kind.tensor_type.elem_type)

    def add_constant(self, tensor: TensorProto) -> None:
        """Record the type of a constant."""
        self._types[tensor.name] = onnx.helper.make_tensor_type_proto(
            tensor.data_type, list(tensor.dims)
        )

    def infer(self, node: NodeProto, data: Mapping[str, TensorProto]) -> None:
        """Infer the types of a node's outputs. ``data``: the constants among its inputs."""
        domain = "" if node.domain == "ai.onnx" else node.domain
        small = {
            name: data[name]
            for name in node.input
            if name in data and prod(data[name].dims) <= DATA_ELEMENTS
        }
        outer = any(attribute.HasField("g") for attribute in node.attribute)
        names = self._types if outer else [name for name in node.input if name]
        try:
            schema = onnx.defs.get_schema(node.op_type, self._versions[domain], domain)
            found = onnx.shape_inference.infer_node_outputs(
                schema,
                node,
                {name: self._types[name] for name in names},
                small,
                opset_imports=self._opsets,
                ir_version=self._ir_version,
            )
        # The operator has no schema, an input has no known type, or ONNX's inference rejects the
        # node. The types that the model itself states are used then.
        except Exception:
            found = {}
        for name in node.output:
            kind = found.get(name) or self._stated.get(name)
            if name and kind is not None:
                self._types[name] = kind
