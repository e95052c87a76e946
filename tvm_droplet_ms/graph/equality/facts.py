# SPDX-License-Identifier: Apache-2.0
"""The facts of an e-graph's classes, and its errors. Imports no TVM."""

from collections.abc import Callable
from typing import NamedTuple

from .language import Operator, Type

Infer = Callable[[Operator, tuple[Type, ...]], Type | None]
"""Infers the type of a call from the types of its operands; None where the call is illegal."""


class NodeLimit(Exception):
    """The e-graph would have more e-nodes than its limit."""


class IllegalTerm(Exception):
    """A term has no type: its operator refuses the operands."""


class OtherType(IllegalTerm):
    """A term has another type than the class that it should be equal to."""


class Facts(NamedTuple):
    """The facts of the value of an e-class.

    ``weight_only``: whether some e-node of the class depends on weights alone.
    """

    type: Type
    weight_only: bool
