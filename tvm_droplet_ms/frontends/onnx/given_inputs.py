# SPDX-License-Identifier: Apache-2.0
"""The inputs of an ONNX model, those that are overwritten in place, and messages of refusal."""

import re
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from tvm import relax
from tvm.ir import IRModule

from ...model.bindings import shape_of_type
from ...model.decoding.in_place import copied, give_away
from ...session.errors import ModelError, first_line
from ..extents import DeclaredInput, fits
from ..imported import listed
from .operators.nodes.contrib.grouped_attention import SHARES_PAST
from .operators.operands import UnknownExtent, UnsupportedNode, WrongExtent
from .order import deciding_inputs, named, true_inputs

DECIDED = ("If", "Loop", "Scan")
"""Operators that may be removed once a value that they depend on is known."""


def declared_input(value: onnx.ValueInfoProto) -> DeclaredInput:
    """Read an input's declaration. Raises ``ModelError`` if it is not a tensor of numbers."""
    if not value.type.HasField("tensor_type"):
        kind = value.type.WhichOneof("value") or "value of no type"
        raise ModelError(f"input {value.name!r} is a {kind}: expected a tensor")
    tensor = value.type.tensor_type
    if tensor.elem_type == onnx.TensorProto.STRING:
        raise ModelError(f"input {value.name!r} is a tensor of strings: expected one of numbers")
    if not tensor.HasField("shape"):
        return DeclaredInput(value.name, None)
    return DeclaredInput(
        value.name,
        tuple(
            dim.dim_value if dim.dim_value > 0 else dim.dim_param.strip("?") or None
            for dim in tensor.shape.dim
        ),
    )


def extent_names(value: onnx.ValueInfoProto) -> tuple[str | None, ...]:
    """Return the name of each extent of a tensor that a model declares; None for one without."""
    names = tuple(dim.dim_param or None for dim in value.type.tensor_type.shape.dim)
    return names if any(names) else ()


def input_values(
    model: onnx.ModelProto, given: Mapping[str, Any], dims: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """Convert values of inputs to the declared types and shapes.

    A scalar fills a static shape. Raises ``ModelError`` if an input is unknown or a value does not
    fit.
    """
    inputs = {value.name: value for value in true_inputs(model)}
    if unknown := sorted(set(given) - set(inputs)):
        raise ModelError(
            f"constants names the input {unknown[0]!r}: the model has {', '.join(inputs)}"
        )
    values = {}
    for name, value in given.items():
        stated = declared_input(inputs[name]).stated(dims)
        kind = onnx.helper.tensor_dtype_to_np_dtype(inputs[name].type.tensor_type.elem_type)
        array = _converted(name, value, kind)
        shape = [each for each in stated or () if isinstance(each, int)]
        if not array.shape and stated is not None and len(shape) == len(stated):
            array = np.full(shape, array)
        if not fits(stated, array.shape):
            shown = ", ".join("?" if each is None else str(each) for each in stated or ())
            raise ModelError(
                f"constants gives {name!r} a value of shape {array.shape}: the model has "
                f"({shown}), so that a list of that shape is expected"
            )
        values[name] = array
    return values


def _converted(name: str, value: Any, kind: np.dtype) -> np.ndarray:
    """Convert a value to an input's type. Raises ``ModelError`` if the type cannot hold it."""
    try:
        given = np.asarray(value)
        with np.errstate(invalid="ignore"):  # A NaN for an integer is refused below.
            array = given.astype(kind)
    except (TypeError, ValueError, OverflowError) as error:
        raise ModelError(f"constants gives {name!r} the value {value!r}: {error}") from error
    # A whole number may be given as a float; floating-point types round.
    if kind.kind in "iub" and not np.array_equal(array, given):
        raise ModelError(
            f"constants gives {name!r} the value {value!r}: the model takes {kind}, which does not "
            "hold it"
        )
    return array


def refusal(model: onnx.ModelProto, error: Exception, is_open: bool) -> str:
    """Return one sentence on why a model cannot be imported, and which inputs to bind.

    ``is_open``: whether the model has dynamic extents.
    """
    node = _failing_node(error)
    if isinstance(error, UnknownExtent):
        text = f"{first_line(error)}; {_binding(model, error.values)}"
    elif isinstance(error, WrongExtent):
        remedy = "pass other extents with dims= or shapes= (--dim, --shape), or " * is_open
        text = f"{first_line(error)}; {remedy}export the model without it"
    elif isinstance(error, UnsupportedNode):
        text = f"{first_line(error)}; {error.remedy}"
    else:
        where = f" {named(node)} of" if node is not None else ""
        text = f"TVM's ONNX importer cannot import{where} the model: {first_line(error)}"
    if node is not None and node.op_type in DECIDED:
        text += ", or bind the input that decides it with constants={name: value} (--constant)"
    return text


def _binding(model: onnx.ModelProto, values: Sequence[str]) -> str:
    """Return the remedy if values determine an extent."""
    names = deciding_inputs(model.graph, values)
    if not names:
        return (
            "its extents depend on data: export the model with fixed ones, or bind an input that "
            "decides them with constants={name: value} (--constant NAME=VALUE)"
        )
    several = len(names) > 1
    given = ", ".join(f"{name!r}: value" for name in names)
    options = " ".join(f"--constant {name}=VALUE" for name in names)
    listed = " and ".join(repr(name) for name in names)
    return (
        f"the input{'s' * several} {listed} decide{'s' * (not several)} it: bind "
        f"{'them' if several else 'it'} with constants={{{given}}} ({options})"
    )


def _failing_node(error: BaseException) -> Any:
    """Return the node that the importer failed on, from the traceback of the error."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_name == "_construct_nodes":
            return frame.f_locals.get("node")
    return None


_PAST_OF = {1: 3, 2: 4}
"""The index of the input that each output of ``GroupQueryAttention`` extends, by output index."""


def named_pairs(
    in_place: Mapping[str, str], inputs: Sequence[str], outputs: Sequence[str]
) -> dict[str, str]:
    """Return the inputs to overwrite, and the output that is written into each.

    ``in_place``: pairs of names, or of patterns in which one ``*`` stands for the same text in
    both. Raises ``ModelError`` if an input or output does not exist or is named twice.
    """
    is_named = isinstance(in_place, Mapping) and all(
        isinstance(name, str) for pair in in_place.items() for name in pair
    )
    if not is_named:
        raise ModelError(
            f"in_place is {in_place!r}: expected names of outputs by those of inputs, such as "
            "{'past_key_values.*': 'present.*'}"
        )
    pairs: dict[str, str] = {}
    for name, other in in_place.items():
        if name.count("*") != other.count("*") or name.count("*") > 1:
            raise ModelError(
                f"in_place has the pair {name!r}, {other!r}: expected one * in both, or none"
            )
        pattern = re.escape(name).replace(re.escape("*"), "(.*)")
        found = [each for each in map(re.compile(pattern).fullmatch, inputs) if each]
        if not found:
            raise ModelError(
                f"in_place names the input {name!r}: the model has {listed(inputs, 8)}"
            )
        for match in found:
            output = other.replace("*", match[1]) if "*" in other else other
            if output not in outputs:
                raise ModelError(
                    f"in_place names the output {output!r}: the model has {listed(outputs, 8)}"
                )
            if match[0] in pairs or output in pairs.values():
                raise ModelError(
                    f"in_place names the input {match[0]!r} or the output {output!r} twice: "
                    "expected one output for each input"
                )
            pairs[match[0]] = output
    return pairs


def share_pasts(
    model: onnx.ModelProto, pairs: Mapping[str, str]
) -> tuple[onnx.ModelProto, dict[str, str]]:
    """Mark each GroupQueryAttention that overwrites its past in place.

    ONNX Runtime then keeps the values after the new rows; otherwise it sets them to 0. Returns a
    marked copy of the model, and the pairs of the marked nodes.
    """
    shared: dict[str, str] = {}
    if all(node.op_type != "GroupQueryAttention" for node in model.graph.node):
        return model, shared  # A copy would duplicate all weights.
    marked = type(model)()
    marked.CopyFrom(model)
    for node in marked.graph.node:
        if node.op_type == "GroupQueryAttention":
            both = {
                past: (node.input[past], node.output[new])
                for new, past in _PAST_OF.items()
                if new < len(node.output) and past < len(node.input)
            }
            written = {n: pair for n, pair in both.items() if pairs.get(pair[0]) == pair[1]}
            if written:
                node.attribute.append(onnx.helper.make_attribute(SHARES_PAST, list(written)))
            shared.update(written.values())
    return (marked, shared) if shared else (model, {})


def mark_given(
    mod: IRModule, pairs: Mapping[str, str], inputs: Sequence[str], outputs: Sequence[str]
) -> IRModule:
    """Mark the parameters of a module that are overwritten in place.

    ``inputs``, ``outputs``: names in the order of the module. Raises ``ModelError`` if an output
    differs from its input in shape or type, or cannot be written into it.
    """
    main = mod["main"]
    kind = main.ret_ty
    kinds = list(kind.fields) if isinstance(kind, relax.TupleType) else [kind]
    names = {}
    for name, other in pairs.items():
        param, number = main.params[list(inputs).index(name)], list(outputs).index(other)
        before, after = _shown(param.ty), _shown(kinds[number])
        if before != after:
            raise ModelError(
                f"in_place: the input {name!r} is {before} and the output {other!r} is {after}: "
                "expected the same shape and type, as of a cache that holds all places"
            )
        names[param.name] = number
    marked = give_away(mod, names)
    originals = {main.params[list(inputs).index(name)].name: name for name in pairs}
    for name, reason in copied(marked).items():
        original = originals[name]
        raise ModelError(
            f"in_place: the output {pairs[original]!r} cannot be written into the input "
            f"{original!r}: {reason}; leave this pair out"
        )
    return marked


def _shown(kind: Any) -> str:
    return f"{kind.dtype} {shape_of_type(kind)}"
