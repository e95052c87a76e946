# SPDX-License-Identifier: Apache-2.0
"""TVM's ONNX importer with more converters, constant folding, and errors that name the node.

TVM 0.27 (``python/tvm/relax/frontend/onnx/onnx_frontend.py``) keeps its converters in a dictionary
that a function rebuilds for each node, and has no way to add one.
"""

from collections.abc import Sequence
from typing import Any

import tvm_ffi

import tvm
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from ....compat.patch import Patch
from ....model.bindings import NUMPY_TYPES
from ....session.errors import last_line
from ..mapped import array_of_tensor, is_mapped
from ..order import deciding_inputs, reads
from .folding import as_array, expand_function, fold_node, is_better_expanded
from .nodes import arithmetic, detection, pooling, quantized, resize, shapes, signal
from .nodes.classical import DOMAIN as CLASSICAL
from .nodes.classical import scores, trees, vectors
from .nodes.contrib import DOMAIN as CONTRIB
from .nodes.contrib import attention, fused, grouped_attention, packed_weights
from .nodes.recurrence import converters
from .operands import (
    NOT_CONSTANT,
    StringValues,
    UnknownExtent,
    UnsupportedNode,
    WrongExtent,
    converter_of,
    has_tvms,
    standard,
)

_OTHER_DOMAINS = (CLASSICAL, CONTRIB)
"""The domains of supported operators that are not ONNX's standard ones."""

_DOMAINS = ("", "ai.onnx", *_OTHER_DOMAINS)
"""The domains of supported operators."""

MODULES = (
    *(arithmetic, detection, pooling, quantized, resize, shapes, signal),
    *(scores, trees, vectors, attention, fused, grouped_attention, packed_weights, converters),
)
"""All converters of this package: the modules fill the registry when they are imported."""

_OF_ONNX_RUNTIME = {
    *("Attention", "BiasGelu", "EmbedLayerNormalization", "FastGelu", "SkipLayerNormalization")
}
"""TVM's converters that are for ONNX Runtime's operators, and not for ONNX's."""

_TYPES = ("float4_", "float6_", "float8_", "int2", "int4", "uint2", "uint4")
"""The prefixes of unsupported types."""

_OF_SEQUENCES = {
    *("Optional", "OptionalGetElement", "SequenceConstruct", "SequenceEmpty", "SequenceErase"),
    *("SequenceInsert", "ConcatFromSequence", "SplitToSequence"),
}
"""Operators whose single result may be a tuple."""


_OF_ANY_RANK = {"Identity", "Shape", "Size"}
"""Operators that do not need the shape of their input."""


class Importer(onnx_frontend.ONNXGraphImporter):  # type: ignore[misc, name-defined, unused-ignore]
    """TVM's importer, with more converters. Raises ``UnsupportedNode`` for what has none."""

    def from_onnx(self, graph: Any, opset: int) -> Any:
        """Import a graph. Refuse strings, and constants that TVM cannot load."""
        for tensor in graph.initializer:
            if tensor.data_type == tensor.STRING:
                raise StringValues(f"the constant {tensor.name!r} is a tensor of strings")
        module = super().from_onnx(graph, opset)
        found: list[Any] = []
        relax.analysis.post_order_visit(module["main"].body, found.append)
        for value in found:
            if (shape := _unloadable_shape(value)) is not None:
                raise UnsupportedNode(
                    f"the model has a constant of the shape {shape}, and TVM cannot load one "
                    "that has no elements"
                )
        return module

    def _parse_array(self, tensor_proto: Any) -> Any:
        """The values of a constant; a mapped weight whose place TVM takes is not copied."""
        if not is_mapped(tensor_proto):
            return super()._parse_array(tensor_proto)
        array = array_of_tensor(tensor_proto)
        if array.ctypes.data % 64 or str(array.dtype) not in NUMPY_TYPES:
            return tvm.runtime.tensor(array)
        return tvm_ffi.from_dlpack(array)

    def _check_for_unsupported_ops(self, graph: Any) -> None:
        """Do nothing: unsupported nodes are refused one by one, by name."""

    def _construct_nodes(self, graph: Any) -> None:
        self._main_graph = graph
        made = {name for node in graph.node for name in node.output}
        self._unread = made - {each.name for each in graph.output}
        self._unread -= {name for node in graph.node for name in reads(node)}
        for node in graph.node:
            self._convert_node(node)

    def _convert_node(self, node: Any) -> None:
        text = shown(node)
        if any(each.name == "channels_last" and each.i for each in node.attribute):
            raise UnsupportedNode(f"{text} has its channels last, which is not supported")
        if node.domain not in _DOMAINS:
            raise UnsupportedNode(
                f"{text} is an operator of {node.domain!r}, which is not supported"
            )
        try:
            values = self._node_values(node)
        except UnknownExtent as error:
            if error.values:  # From a node inside a branch or a function body.
                raise
            raise self._unknown(node, str(error), error.index) from error
        except UnsupportedNode as error:
            raise type(error)(f"{text} cannot be imported: {error}") from error
        # TVM's converters raise errors of any type.
        except Exception as error:
            if node.op_type == "Reshape" and _is_computed(self._nodes.get(node.input[1])):
                raise self._unknown(node, NOT_CONSTANT.format("shape"), 1) from error
            if any(_is_open(self._nodes.get(name)) for name in node.input if name):
                raise self._unknown(node, last_line(error)) from error
            # The operator takes axes, pads or the like as an input.
            wants_constant = "constant" in last_line(error).lower()
            if wants_constant and deciding_inputs(self._main_graph, node.input):
                raise self._unknown(node, last_line(error)) from error
            raise WrongExtent(f"{text} cannot be imported: {last_line(error)}") from error
        self._nodes.update({name: value for name, value in zip(node.output, values) if name})

    def _unknown(self, node: Any, reason: str, index: int | None = None) -> UnknownExtent:
        """The error for a node with an unknown extent, with the values that decide it."""
        names = [name for name in node.input if name]
        deciding = [name for name in names if _is_open(self._nodes.get(name))] or names
        if index is not None:
            deciding = [node.input[index]]
        text = f"{shown(node)} cannot be imported: {reason}"
        return UnknownExtent(text, values=tuple(deciding))

    def _node_values(self, node: Any) -> Sequence[Any]:
        """The values of a node's outputs."""
        inputs = onnx_frontend.onnx_input()
        inputs.extend(self._value(name) if name else None for name in node.input)
        if node.op_type == "If":
            return self._branches(node, inputs[0])
        if (folded := fold_node(node, list(inputs), self.opset)) is not None:
            return folded
        if is_better_expanded(node, inputs) or not self._is_known(node):
            graph = expand_function(node, list(inputs), self.opset)
            if graph is not None:
                found = iter(self._inlined(graph))
                return [next(found) if name else None for name in node.output]
        _check_types(inputs)
        self._check_shapes(node)
        attributes = self._parse_attr(node.attribute)
        attributes["tvm_custom"] = {
            "name": node.name,
            "opset": self.opset,
            "num_outputs": len(node.output),
            "outputs": ["" if name in self._unread else name for name in node.output],
        }
        values = self._unpacked(node, self._converted(node, inputs, attributes))
        _check_types(values)
        return values

    def _check_shapes(self, node: Any) -> None:
        """Refuse an input without a shape if a length can be bound instead."""
        unshaped = [name for name in node.input if name and _has_no_shape(self._nodes[name])]
        if not unshaped or node.op_type in _OF_ANY_RANK:
            return
        if deciding_inputs(self._main_graph, unshaped):
            raise UnknownExtent("the extents of an input are not known")

    def _value(self, name: str) -> Any:
        """A value by name. A shape becomes a tensor, as in ONNX."""
        value = self._nodes[name]
        if (shape := _unloadable_shape(value)) is not None:
            return self.bb.emit(relax.op.zeros(shape, str(value.ty.dtype)))
        if isinstance(value, relax.ShapeExpr) and (array := as_array(value)) is not None:
            return relax.const(array, "int64")
        return value

    def _is_known(self, node: Any) -> bool:
        """True if a node has a converter. Some of TVM's are only for ONNX Runtime."""
        if node.domain in _OTHER_DOMAINS and converter_of(node.op_type, node.domain):
            return True
        if node.op_type in _OF_ONNX_RUNTIME and node.domain != "com.microsoft":
            return False
        return converter_of(node.op_type) is not None or has_tvms(node.op_type)

    def _converted(self, node: Any, inputs: Any, attributes: dict[str, Any]) -> Any:
        own = converter_of(node.op_type, node.domain) if node.domain in _OTHER_DOMAINS else None
        if own is not None:
            result = own(self.bb, inputs, attributes)
        elif self._is_known(node):
            result = standard(node.op_type, self.bb, inputs, attributes)
        else:
            raise UnsupportedNode("the operator is not supported")
        return self.bb.normalize(result) if isinstance(result, relax.Expr) else result

    def _unpacked(self, node: Any, result: Any) -> Sequence[Any]:
        if node.op_type in _OF_SEQUENCES:
            return [result]
        if not isinstance(result, relax.Tuple) and isinstance(
            getattr(result, "ty", None), relax.TupleType
        ):
            count = len(result.ty.fields)
            result = relax.Tuple(
                [self.bb.emit(relax.TupleGetItem(result, n)) for n in range(count)]
            )
        if not isinstance(result, relax.Tuple):
            values = [result]
        else:
            # Each field becomes a value of its own, not a field of a tuple.
            values = [self.bb.normalize(each) for each in result.fields]
        missing = [name for name in node.output[len(values) :] if name not in self._unread]
        if any(missing):
            raise UnsupportedNode(f"its output {missing[0]!r} is not supported")
        return values

    def _branches(self, node: Any, condition: Any) -> Sequence[Any]:
        """The outputs of an ``If``. A constant condition selects one branch.

        Otherwise both branches are imported, as in TVM's importer.
        """
        graphs = {each.name: each.g for each in node.attribute}
        if isinstance(condition, tvm.ir.GenericConst):
            taken = "then_branch" if bool(condition.value.numpy().all()) else "else_branch"
            return self._inlined(graphs[taken])
        branches = [self._inlined(graphs[name]) for name in ("then_branch", "else_branch")]
        count = len(node.output)
        bodies = [each[0] if count == 1 else relax.Tuple(each) for each in branches]
        whole = [relax.SeqExpr(blocks=[], body=body) for body in bodies]
        result = self.bb.emit(relax.If(condition, *whole))
        if count == 1:
            return [result]
        return [self.bb.emit(relax.TupleGetItem(result, n)) for n in range(count)]

    def _inlined(self, graph: Any) -> Sequence[Any]:
        """The outputs of a nested graph. The graph's names are not visible outside."""
        outer = dict(self._nodes)
        self._parse_graph_initializers(graph)
        for node in graph.node:
            self._convert_node(node)
        values = [self._nodes[output.name] for output in graph.output]
        self._nodes.clear()
        self._nodes.update(outer)
        return values

    def _parse_attr(self, attributes: Any) -> dict[str, Any]:
        """The attributes of a node. TVM's function fails on an empty list."""
        empty = [each.name for each in attributes if _is_empty_list(each)]
        found = super()._parse_attr([each for each in attributes if each.name not in empty])
        return {**found, **{name: () for name in empty}}


def _unloadable_shape(value: Any) -> tuple[int, ...] | None:
    """The shape of a constant that TVM can save, but not load (``tensor.h``).

    Such a constant has no elements, but a nonzero first extent. None for other values.
    """
    if not isinstance(value, tvm.ir.GenericConst):
        return None
    shape = tuple(int(extent) for extent in value.value.shape)
    return shape if 0 in shape[1:] and shape[0] else None


def _check_types(values: Sequence[Any]) -> None:
    """Refuse types for which TVM's kernels compute other values than ONNX, or none."""
    for value in values:
        kind = getattr(value, "ty", None)
        if isinstance(kind, relax.TensorType) and str(kind.dtype).startswith(_TYPES):
            raise UnsupportedNode(f"it has a tensor of type {kind.dtype}, which is not supported")


def _has_no_shape(value: Any) -> bool:
    kind = getattr(value, "ty", None)
    return isinstance(kind, relax.TensorType) and not isinstance(kind.shape, relax.ShapeExpr)


def _is_computed(value: Any) -> bool:
    """True if a value is a tensor whose elements are known only when the model runs."""
    return isinstance(getattr(value, "ty", None), relax.TensorType) and as_array(value) is None


def _is_open(value: Any) -> bool:
    """True if a value is a tensor or a shape with an unknown extent."""
    kind = getattr(value, "ty", None)
    if isinstance(kind, relax.ShapeType):
        return as_array(value) is None
    if not isinstance(kind, relax.TensorType):
        return False
    return _has_no_shape(value) or not all(
        isinstance(extent, tvm.tirx.IntImm) for extent in kind.shape
    )


def _is_empty_list(attribute: Any) -> bool:
    """True if an attribute is a list without elements."""
    kind = type(attribute)
    lists = {kind.FLOATS: "floats", kind.INTS: "ints", kind.STRINGS: "strings"}
    return attribute.type in lists and not getattr(attribute, lists[attribute.type])


more_operators = Patch(lambda: [(onnx_frontend, "ONNXGraphImporter", Importer)])
"""A context in which TVM's ``from_onnx`` uses the converters of this package.

``from_onnx`` looks up its importer class by name when it is called. A node that cannot be converted
raises ``UnsupportedNode``, with the node's name and operator. Outside the context, ``from_onnx`` is
unchanged.
"""


def shown(node: Any) -> str:
    """Describe a node for a message. Without a name, its first output identifies it."""
    if node.name:
        return f"node {node.name!r} ({node.op_type})"
    return f"the node that computes {next(iter(node.output), '')!r} ({node.op_type})"
