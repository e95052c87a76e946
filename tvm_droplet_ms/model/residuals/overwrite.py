# SPDX-License-Identifier: Apache-2.0
"""A pass that lets a kernel write its result over an operand that nothing reads afterwards.

The residual of a network is read, added to and written again, megabytes at a time. If it is written
over itself, it takes the space of one tensor in the caches instead of two. A layer of ResNet-50 in
matrix tiles takes 186 us instead of 245 (1x1 of 64 channels to 256, on 56x56 pixels of bfloat16).
"""

from collections.abc import Iterator, Mapping

import tvm
from tvm import relax
from tvm.ir import GlobalVar, IRModule
from tvm.tirx import PrimFunc

from ..bindings import Expr, Var, bound_values, operator_name, users_of, values_of
from ..rewriting import Emit, Rewrite, binding_pass
from .overwritable import overwritable, overwriting

_CALL = "relax.call_tir"

Choice = dict[GlobalVar, int]
"""The operand that each kernel writes over."""


def overwrite_residuals() -> tvm.transform.Pass:
    """Make a pass that lets kernels write their results over operands after their last use.

    Run it on scheduled modules. ``overwritable`` selects the kernels. In each call of such a
    kernel, the operand has to be the result of another kernel and depend on an input, and the call
    has to be its last use. Kernels keep their parameters and names: calls pass the operand as the
    result too. Functions with branches, and the kernels that they call, stay unchanged. Returns the
    pass.
    """

    def run(mod: IRModule, _context: tvm.transform.PassContext) -> IRModule:
        mod = relax.transform.CanonicalizeBindings()(mod)  # Removes copies of variables.
        choice = _choice(mod)
        if not choice:
            return mod
        changed: IRModule = binding_pass("Overwrite", lambda _: _rewrite(choice), [_CALL])(mod)
        for variable, operand in choice.items():
            changed.update_func(variable, overwriting(mod[variable], operand))
        return changed

    return tvm.transform.module_pass(run, opt_level=0, name="OverwriteResiduals")


def _rewrite(choice: Mapping[GlobalVar, int]) -> Rewrite:
    def rewrite(_var: Var, value: Expr, _emit: Emit) -> Expr | None:
        if operator_name(value) != _CALL or value.args[0] not in choice:
            return None
        operands = list(value.args[1].fields)
        operands.append(operands[choice[value.args[0]]])
        (kind,) = value.ty_args
        arguments = relax.Tuple(operands)
        return relax.op.call_tir_inplace(value.args[0], arguments, [len(operands) - 1], kind)

    return rewrite


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
