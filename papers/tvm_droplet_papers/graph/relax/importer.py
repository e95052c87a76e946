# SPDX-License-Identifier: Apache-2.0
"""Reads Relax functions as e-graphs."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm_ffi

from tvm import relax
from tvm.ir import GenericConst
from tvm.ir import TupleType as RelaxTuple
from tvm_droplet_ms.model.bindings import Expr, array_of

from ..equality.egraph import EGraph
from ..equality.language import Operator, Type, constant_leaf, full_leaf, input_leaf, operator
from .operators import read_call
from .types import RelaxTypes, type_of


class NotImported(Exception):
    """A function cannot be imported and stays unchanged. The message gives the reason."""


@dataclass
class Imported:
    """A Relax function as an e-graph.

    - ``roots``: the classes of its results.
    - ``is_tuple``: whether it returns a tuple of the roots.
    - ``inputs``: the parameters, by the index of their leaves.
    - ``constants``: the constants, by the index of their leaves.
    - ``templates``: an original call for every operator and its operand types. The types matter
      because an axis of -1 depends on the rank.
    - ``hints``: variable names, by class.
    """

    function: relax.Function
    graph: EGraph
    roots: list[int] = field(default_factory=list)
    is_tuple: bool = False
    inputs: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    templates: dict[tuple[Operator, tuple[Type | None, ...]], Any] = field(default_factory=dict)
    hints: dict[int, str] = field(default_factory=dict)


def import_function(func: relax.Function, types: RelaxTypes | None = None) -> Imported:
    """Read a Relax function.

    ``func``: the function after ``CanonicalizeBindings`` and ``ConvertToDataflow``. If it has an
    attribute "num_input", the parameters from that index on are weights. ``types``: infers types.
    None: a new ``RelaxTypes``. Returns the e-graph, with one class for each value that the function
    computes. Raises ``NotImported`` if the function has symbolic shapes, impure calls, control flow
    or several blocks.
    """
    return _Importer(func, types or RelaxTypes()).imported


class _Importer:
    def __init__(self, func: relax.Function, types: RelaxTypes) -> None:
        attrs = func.attrs or {}
        if "Primitive" in attrs or "Codegen" in attrs:
            raise NotImported("it is a kernel")
        if not isinstance(func.body, relax.SeqExpr) or len(func.body.blocks) != 1:
            raise NotImported("it is not one block of pure calls")
        (block,) = func.body.blocks
        if not isinstance(block, relax.DataflowBlock):
            raise NotImported("its calls are not known to be pure (no dataflow block)")
        first_weight = int(attrs["num_input"]) if "num_input" in attrs else len(func.params)
        weights = frozenset(range(first_weight, len(func.params)))
        self.types = types
        self.graph = EGraph(types, weights)
        self.imported = Imported(func, self.graph)
        self.values: dict[Any, int] = {}
        self.constants: dict[Any, int] = {}
        self.tuples: dict[Any, relax.Tuple] = {}
        for index, parameter in enumerate(func.params):
            leaf = input_leaf(index, self._type(parameter))
            types.opaque[leaf] = self._type(parameter)
            self.values[parameter] = self.graph.add(leaf)
            self.imported.inputs.append(parameter)
        for binding in block.bindings:
            if not isinstance(binding, relax.VarBinding):
                raise NotImported(f"it has a {type(binding).__name__}")
            if isinstance(binding.value, relax.Tuple):
                self.tuples[binding.var] = binding.value
            self.values[binding.var] = self._value(binding.value)
            self.imported.hints.setdefault(self.values[binding.var], binding.var.name)
        result = func.body.body
        self.imported.is_tuple = isinstance(result, relax.Tuple)
        results = result.fields if self.imported.is_tuple else [result]
        self.imported.roots = [self._value(each) for each in results]

    def _type(self, expr: Expr) -> Any:
        type_ = type_of(expr.ty)
        if type_ is None:
            raise NotImported(f"a value has the type {expr.ty}, which is not static")
        return type_

    def _value(self, expr: Expr) -> int:
        if isinstance(expr, relax.Var):
            return self.values[expr]
        if isinstance(expr, GenericConst):
            return self._constant(expr)
        if isinstance(expr, relax.Call):
            return self._call(expr)
        if isinstance(expr, relax.TupleGetItem):
            return self.graph.add(
                operator("get", index=int(expr.index)), (self._value(expr.tuple_value),)
            )
        if isinstance(expr, relax.Tuple):
            return self._tuple(expr)
        raise NotImported(f"it has a {type(expr).__name__}")

    def _tuple(self, expr: relax.Tuple) -> int:
        children = tuple(self._value(each) for each in expr.fields)
        op = operator("tuple", types=tuple(self.graph.facts(child).type for child in children))
        self.types.opaque[op] = self._type(expr)
        return self.graph.add(op, children)

    def _constant(self, expr: Expr) -> int:
        type_ = self._type(expr)
        if expr in self.constants:
            return self.constants[expr]
        leaf = constant_leaf(len(self.imported.constants), type_)
        array = array_of(expr)
        # Exclude -0.0: the e-graph would treat it as equal to 0.0.
        if array is not None and array.size == 1 and (array != 0 or not np.signbit(array)):
            # Equal scalars share a class, so that their users can be equal, too.
            leaf = full_leaf(array.reshape(-1)[0].item(), type_)
        self.constants[expr] = self.graph.add(leaf)
        self.imported.constants.append(expr)
        self.imported.templates.setdefault((leaf, ()), expr)
        return self.constants[expr]

    def _call(self, call: relax.Call) -> int:
        self._type(call)
        arguments = [self.tuples.get(a, a) if isinstance(a, relax.Var) else a for a in call.args]
        call = relax.Call(call.op, arguments, call.attrs, call.ty_args, call.span, call.ty)
        op = read_call(call)
        children = list(_tensors(call))
        if op is None:
            op = self._opaque(call, children)
        types = tuple(self._type(child) for child in children)
        self.imported.templates.setdefault((op, types), call)
        return self.graph.add(op, tuple(self._value(child) for child in children))

    def _opaque(self, call: relax.Call, children: list[Expr]) -> Operator:
        """The opaque operator of an unsupported call, shared by calls with the same attributes."""
        if isinstance(call.op, relax.Var | relax.Function):
            raise NotImported(f"it calls a function through {type(call.op).__name__}")
        types = [self._type(child) for child in children]
        holes = [relax.Var(f"x{i}", child.ty) for i, child in enumerate(children)]
        shell = relax.Function(holes, with_operands(call, holes), call.ty)
        for (op, _), template in self.imported.templates.items():
            if op.name == "opaque" and op.get("types") == tuple(types):
                other = with_operands(template, holes)
                if tvm_ffi.structural_equal(relax.Function(holes, other, template.ty), shell):
                    return op
        number = len(self.types.opaque)
        op = operator("opaque", number=number, types=tuple(types), of=_name(call))
        self.types.opaque[op] = self._type(call)
        return op


def _name(call: relax.Call) -> str:
    names = [getattr(call.op, "name", "")]
    names += [arg.name_hint for arg in call.args if hasattr(arg, "name_hint") and len(names) < 2]
    return " ".join(filter(None, names))


def _is_tensor(expr: Expr) -> bool:
    return isinstance(expr.ty, relax.TensorType)


def _tensors(call: relax.Call) -> Iterator[Expr]:
    """The tensor operands of a call, and tuple operands that are bound to variables.

    Tensors in an inline tuple are listed one by one. Raises ``NotImported`` for operands of other
    types.
    """
    for argument in call.args:
        if isinstance(argument, relax.Tuple) and all(map(_is_tensor, argument.fields)):
            yield from argument.fields
        elif isinstance(argument, relax.Var | GenericConst | relax.Call | relax.TupleGetItem):
            if isinstance(argument.ty, relax.TensorType | RelaxTuple):
                yield argument
            else:
                raise NotImported(f"an operand has the type {argument.ty}")
        elif relax.analysis.free_vars(argument):
            raise NotImported(f"an operand is a {type(argument).__name__} with variables in it")


def with_operands(call: relax.Call, operands: list[Expr]) -> relax.Call:
    """Copy a call with new operands.

    ``operands``: one for each operand in ``_tensors``, including tensors in inline tuples.
    """
    rest = iter(operands)
    arguments: list[Any] = []
    for argument in call.args:
        if isinstance(argument, relax.Tuple) and all(map(_is_tensor, argument.fields)):
            arguments.append(relax.Tuple([next(rest) for _ in argument.fields]))
        elif isinstance(argument, relax.Var | GenericConst | relax.Call | relax.TupleGetItem):
            arguments.append(next(rest))
        else:
            arguments.append(argument)
    return relax.Call(call.op, arguments, call.attrs, call.ty_args, call.span)
