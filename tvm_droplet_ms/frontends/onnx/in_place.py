# SPDX-License-Identifier: Apache-2.0
"""Inputs of an ONNX model that are overwritten in place: each receives an output."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from tvm import relax
from tvm.ir import IRModule

from ...model.bindings import shape_of_type
from ...model.decoding.in_place import copied, give_away
from ...session.errors import ModelError
from ..imported import listed
from .operators.nodes.contrib.grouped_attention import SHARES_PAST

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
