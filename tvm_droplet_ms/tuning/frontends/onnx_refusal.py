# SPDX-License-Identifier: Apache-2.0
"""The reason why an ONNX model cannot be imported, and the remedy, in a sentence."""

import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...model.onnx.inputs import deciding_inputs
from ...model.onnx.operators import UnknownExtent, UnsupportedNode, WrongExtent
from ...model.onnx.order import named

if TYPE_CHECKING:
    import onnx

DECIDED = ("If", "Loop", "Scan")
"""Operators that may go once a value that they depend on is known."""


def refusal(model: "onnx.ModelProto", error: Exception) -> str:
    """Say why a model cannot be imported.

    Parameters
    ----------
    model : onnx.ModelProto
        The model that the importer was given.
    error : Exception
        What the importer raised.

    Returns
    -------
    text : str
        One sentence. Where an extent is not known, it names the inputs to bind.
    """
    node = _failing_node(error)
    if isinstance(error, UnknownExtent):
        text = f"{first_line(error)}; {_binding(model, error.values)}"
    elif isinstance(error, WrongExtent):
        text = (
            f"{first_line(error)}; pass other extents with dims= or shapes= (--dim, --shape), or "
            "export the model without it"
        )
    elif isinstance(error, UnsupportedNode):
        text = f"{first_line(error)}; export the model without it"
    else:
        where = f" {named(node)} of" if node is not None else ""
        text = f"TVM's ONNX importer cannot import{where} the model: {first_line(error)}"
    if node is not None and node.op_type in DECIDED:
        text += ", or bind the input that decides it with constants={name: value} (--constant)"
    return text


def _binding(model: "onnx.ModelProto", values: Sequence[str]) -> str:
    """The remedy where some values decide an extent."""
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
    """The node that the importer was at, from the frames that the error came through."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_name == "_construct_nodes":
            return frame.f_locals.get("node")
    return None


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its class where it has none."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0][:300]
