# SPDX-License-Identifier: Apache-2.0
"""Residuals: sums that a kernel writes over an operand that nothing reads afterwards.

The residual of a network is read, added to and written again, megabytes at a time. Written over
itself, it takes the space of one tensor in the caches instead of two. The kernel must read each
element of the operand once, for the element of the result at the same place.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from tvm_ffi import structural_equal
from tvm_ffi.structural import structural_map

import tvm
from tvm import relax, tirx
from tvm.ir import GlobalVar, IRModule
from tvm.ir.expr import TensorLoad
from tvm.s_tir import SBlockRealize
from tvm.tirx import BufferStore, IntImm, PrimFunc

from ..design_space.screening.soundness import numbers_of, realizations
from ..design_space.trees import nodes_in
from .bindings import Bindings, Expr, Var, bound_values, operator_name, users_of, values_of
from .rewriting import Emit, operator_pass

_CALL = "relax.call_tir"

Choice = dict[GlobalVar, int]
"""The operand that each kernel writes over."""


def overwrite_residuals() -> tvm.transform.Pass:
    """Make a pass that lets kernels write their results over operands after their last use.

    Run it on scheduled modules. ``overwritable`` selects the kernels. In each call of such a
    kernel, the operand has to be the result of another kernel and depend on an input, and the call
    has to be its last use. Kernels keep their parameters and names: calls pass the operand as the
    result too. Functions with branches, and the kernels that they call, stay unchanged.
    """

    def run(mod: IRModule, _context: tvm.transform.PassContext) -> IRModule:
        mod = relax.transform.CanonicalizeBindings()(mod)  # Removes copies of variables.
        choice = _choice(mod)
        if not choice:
            return mod

        @operator_pass("Overwrite", [_CALL])
        def overwrite(_bindings: Bindings, value: Expr, _emit: Emit) -> Expr | None:
            if value.args[0] not in choice:
                return None
            operands = list(value.args[1].fields)
            operands.append(operands[choice[value.args[0]]])
            (kind,) = value.ty_args
            places = [len(operands) - 1]
            return relax.op.call_tir_inplace(value.args[0], relax.Tuple(operands), places, kind)

        changed: IRModule = overwrite()(mod)
        for variable, operand in choice.items():
            changed.update_func(variable, overwriting(mod[variable], operand))
        return changed

    return tvm.transform.module_pass(run, opt_level=0, name="OverwriteResiduals")


def _choice(mod: IRModule) -> Choice:
    """Return the kernels that write over an operand in all their calls, and that operand."""
    possible: dict[GlobalVar, set[int]] = {}
    kernels = {each: f for each, f in mod.functions_items() if isinstance(f, PrimFunc)}
    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            for variable, numbers in _uses(function, kernels):
                possible[variable] = possible.get(variable, numbers) & numbers
    return {variable: min(numbers) for variable, numbers in possible.items() if numbers}


def _uses(
    function: relax.Function, kernels: Mapping[GlobalVar, PrimFunc]
) -> Iterator[tuple[GlobalVar, set[int]]]:
    """Yield each use of a kernel and the operands that it may write over (none for most uses)."""
    values = bound_values(function)
    if any(isinstance(value, (relax.If, relax.Function)) for value in values_of(function)):
        yield from ((each, set()) for each in relax.analysis.all_global_vars(function))
        return
    reader = _Reader(function, values, kernels)
    for variable, value in values.items():
        if operator_name(value) == _CALL and value.args[0] in kernels:
            yield value.args[0], reader.operands(variable, value)
        else:
            yield from ((each, set()) for each in relax.analysis.all_global_vars(value))


class _Reader:
    """The readers of the variables of a function without branches, and their order."""

    def __init__(
        self,
        function: relax.Function,
        values: Mapping[Var, Expr],
        kernels: Mapping[GlobalVar, PrimFunc],
    ) -> None:
        self._values, self._kernels = values, kernels
        self._users = users_of(function)
        self._order = {variable: place for place, variable in enumerate(values)}
        self._overwritable: dict[GlobalVar, list[int]] = {}
        self._varying = set(function.params)
        for variable, value in values.items():
            if not self._varying.isdisjoint(relax.analysis.free_vars(value)):
                self._varying.add(variable)

    def operands(self, variable: Var, value: Expr) -> set[int]:
        """Return the operands that a kernel call may overwrite with its only result."""
        if not isinstance(value.ty, relax.TensorType) or not isinstance(value.args[1], relax.Tuple):
            return set()
        name, operands = value.args[0], list(value.args[1].fields)
        if name not in self._overwritable:
            self._overwritable[name] = overwritable(self._kernels[name])
        return {
            number
            for number in self._overwritable[name]
            if number < len(operands)
            and sum(each.same_as(operands[number]) for each in operands) == 1
            and self._is_made(operands[number])
            and self._is_done_with(operands[number], variable)
        }

    def _is_made(self, operand: Expr) -> bool:
        """True for the result of a kernel, unless it will become a constant."""
        is_variable = isinstance(operand, relax.Var) and operand in self._varying
        return is_variable and self._is_kernel(self._values.get(operand))

    def _is_kernel(self, value: Expr) -> bool:
        """True for a call of a kernel that TVM does not replace by a view of its operand."""
        kernel = self._kernels.get(value.args[0]) if operator_name(value) == _CALL else None
        return kernel is not None and not relax.analysis.has_reshape_pattern(kernel)

    def _is_done_with(self, operand: Expr, at: Var) -> bool:
        """True if nothing else reads an operand from a call on, not even through a view."""
        others = [each for each in self._users[operand] if not each.same_as(at)]
        # The result of the function counts as a user: the variable itself.
        return not any(each.same_as(operand) for each in others) and all(
            self._order.get(each, len(self._order)) < self._order[at]
            and self._is_kernel(self._values[each])
            for each in others
        )


MOST_ELEMENTS = 1 << 22
"""Maximum number of elements of a result, because the place of each is checked."""


def overwritable(kernel: PrimFunc) -> list[int]:
    """Return the operands that a kernel may overwrite with its result, the last parameter.

    ``kernel``: scheduled or not. One block must write the result, each element once. Only this
    block may read the operand, at the place that it writes. Returns positions among the parameters,
    and an empty list for kernels of any other form.
    """
    if not len(kernel.params):
        return []
    *operands, result = kernel.params
    alike = [number for number, each in enumerate(operands) if _is_alike(each, result)]
    found = _writer(kernel, result) if alike else None
    if found is None or not _writes_once(*found, _extents(result)):
        return []
    block = found[0].block
    return [number for number in alike if _is_read_there(kernel, block, operands[number])]


def overwriting(kernel: PrimFunc, operand: int) -> PrimFunc:
    """Make a kernel that writes over an operand, not to its last parameter.

    ``operand``: a position that ``overwritable`` returns. The caller passes the operand in both
    places.
    """
    source, result = kernel.params[operand], kernel.params[-1]

    def other(variable: tirx.Var) -> tirx.Var:
        return source if variable.same_as(result) else variable

    return kernel.with_body(structural_map(kernel.body, (tirx.Var, other)))


def _extents(buffer: Any) -> list[int] | None:
    """Return the extents of a buffer, or None if one is symbolic or there are too many elements."""
    extents = list(buffer.shape)
    if not all(isinstance(extent, IntImm) for extent in extents):
        return None
    numbers = [int(extent) for extent in extents]
    return numbers if 0 < math.prod(numbers) <= MOST_ELEMENTS else None


def _is_alike(operand: Any, result: Any) -> bool:
    """True if two parameters are buffers of the same shape and type."""
    shapes = [getattr(each, "shape", None) for each in (operand, result)]
    if any(shape is None for shape in shapes) or str(operand.dtype) != str(result.dtype):
        return False
    return _extents(result) is not None and _extents(operand) == _extents(result)


def _writer(kernel: PrimFunc, result: Any) -> tuple[Any, list[Any]] | None:
    """Return the block whose body is the only store to a result, and the loops around it."""
    root = kernel.body
    if not isinstance(root, SBlockRealize) or len(root.block.match_buffers):
        return None
    found = [
        (realize, loops)
        for realize, loops in realizations(root.block.body)
        if len(realize.block.iter_vars) and _mentions(realize.block.body, result)
    ]
    if len(found) != 1 or _mentions(root.block.body, result) != _mentions(found[0][0], result):
        return None
    block = found[0][0].block
    store = block.body
    is_store = isinstance(store, BufferStore) and store.buffer.same_as(result)
    if not is_store or block.init is not None or _mentions(store, result) != 1:
        return None
    return found[0]


def _mentions(node: Any, variable: tirx.Var) -> int:
    return sum(each.same_as(variable) for each in nodes_in(node, tirx.Var))


def _writes_once(realize: Any, loops: Sequence[Any], extents: Sequence[int] | None) -> bool:
    """True if a block stores each element of a buffer once."""
    numbers = [each for loop in loops for each in (loop.min, loop.extent)]
    if extents is None or not all(isinstance(each, IntImm) for each in numbers):
        return False
    counts = [int(loop.extent) for loop in loops]
    elements = math.prod(extents)
    block = realize.block
    if math.prod(counts) > 2 * elements or any(int(loop.min) for loop in loops):
        return False
    mesh = np.ix_(*(np.arange(count) for count in counts))
    values = {loop.loop_var: each for loop, each in zip(loops, mesh, strict=True)}
    try:
        for axis, value in zip(block.iter_vars, realize.iter_values, strict=True):
            values[axis.var] = _numbers(value, values)
        places = [_numbers(index, values) for index in block.body.indices]
        is_run = _numbers(realize.predicate, values).astype(bool)
    # The index is loaded from a buffer, or has an operator that `numbers_of` cannot evaluate.
    except (KeyError, AttributeError, FloatingPointError):
        return False
    place = np.zeros((), dtype="int64")
    for number, extent in zip(places, extents, strict=True):
        place = place * extent + number
    place, is_run = (np.broadcast_to(each, counts) for each in (place, is_run))
    if place[is_run].min(initial=0) < 0:
        return False
    written = np.bincount(place[is_run].ravel(), minlength=elements)
    return written.size == elements and bool((written == 1).all())


def _numbers(value: Any, values: Mapping[tirx.Var, np.ndarray]) -> np.ndarray:
    """Evaluate an expression in all iterations. Raises ``KeyError`` for any other variable."""
    if not all(each in values for each in nodes_in(value, tirx.Var)):
        raise KeyError("a variable from outside")
    return numbers_of(value, values)


def _is_read_there(kernel: PrimFunc, block: Any, operand: Any) -> bool:
    """True if only a given block reads an operand, at the place that it writes."""
    loads = nodes_in(block.body, TensorLoad)
    own = [load for load in loads if load.source.same_as(operand)]
    inside = _mentions(block, operand)
    return (
        len(own) > 0
        and _mentions(block.body, operand) == len(own)
        and _mentions(kernel.body, operand) == inside
        and all(structural_equal(load.indices, block.body.indices) for load in own)
    )
