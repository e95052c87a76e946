# SPDX-License-Identifier: Apache-2.0
"""Infers types of calls with Relax, with a cache."""

from typing import Any

import tvm
from tvm import relax
from tvm.ir import TupleType as RelaxTuple

from ..equality.language import Operator, Tensor, TupleType, Type
from .operators import write_call


def type_of(relax_type: Any) -> Type | None:
    """Convert a Relax type to the language; None if symbolic, placed on a device, or non-tensor."""
    if isinstance(relax_type, relax.TensorType):
        shape = relax_type.shape
        # The types of the language have no device, so a placement would be lost.
        if not isinstance(shape, relax.ShapeExpr) or relax_type.vdevice is not None:
            return None
        if not all(isinstance(extent, tvm.tirx.IntImm) for extent in shape):
            return None
        return Tensor(tuple(int(extent) for extent in shape), str(relax_type.dtype))
    if isinstance(relax_type, RelaxTuple):
        fields = [type_of(field) for field in relax_type.fields]
        known = [field for field in fields if field is not None]
        return TupleType(tuple(known)) if len(known) == len(fields) else None
    return None


def relax_type(type_: Type) -> Any:
    """Convert a type of the language to Relax."""
    if isinstance(type_, TupleType):
        return RelaxTuple([relax_type(field) for field in type_.fields])
    return relax.TensorType(type_.shape, type_.dtype)


class RelaxTypes:
    """Infers types with Relax; an ``Infer`` function for the e-graph.

    ``opaque``: the types of inputs, tuples and opaque calls, which the importer fills in.
    """

    def __init__(self) -> None:
        self.opaque: dict[Operator, Type] = {}
        self._cache: dict[tuple[Operator, tuple[Type, ...]], Type | None] = {}
        self._builder = relax.BlockBuilder()

    def __call__(self, operator: Operator, types: tuple[Type, ...]) -> Type | None:
        if operator in self.opaque:
            return self.opaque[operator]
        key = (operator, types)
        if key not in self._cache:
            self._cache[key] = self._infer(operator, types)
        return self._cache[key]

    def _infer(self, operator: Operator, types: tuple[Type, ...]) -> Type | None:
        if operator.name == "get":
            (fields,) = types
            return fields.fields[operator.get("index")] if isinstance(fields, TupleType) else None
        operands = [relax.Var(f"x{i}", relax_type(type_)) for i, type_ in enumerate(types)]
        try:
            call = self._builder.normalize(write_call(operator, operands))
        # Relax raises many error types for illegal calls.
        except Exception:
            return None
        return type_of(call.ty)
