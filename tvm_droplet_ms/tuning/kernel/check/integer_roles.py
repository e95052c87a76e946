# SPDX-License-Identifier: Apache-2.0
"""Finds how a kernel uses its integer arguments, so that made-up values do not crash it."""

from dataclasses import dataclass
from typing import Any

from tvm_ffi.structural import structural_walk

from tvm.ir import IRModule
from tvm.ir.expr import TensorLoad
from tvm.tirx import BufferStore, Cast, Div, FloorDiv, FloorMod, Mod


@dataclass
class IntegerRole:
    """The values that an integer argument may take.

    ``low``: the minimum. ``high``: the exclusive maximum; None if no axis limits the values.
    """

    low: int = 0
    high: int | None = None


def integer_roles(mod: IRModule) -> dict[str, IntegerRole]:
    """The roles of all integer arguments of an unscheduled kernel, by name.

    An argument used directly as an index is below the extent of its shortest axis. An argument from
    which an index is computed is 0. If an index is loaded from an intermediate buffer, all integer
    arguments are 0, because intermediate values are not traced. An argument used only as a divisor
    is at least 1.
    """
    func = mod["main"]
    places = {param: str(param.name) for param in func.params if _is_integer(param)}
    roles = {name: IntegerRole() for name in places.values()}

    def limit(load: Any, high: int) -> None:
        own = places.get(load.source)
        for name in [own] if own is not None else roles:
            role = roles[name]
            role.high = high if role.high is None else min(role.high, high)

    def access(buffer: Any, indices: Any) -> None:
        for index, extent in zip(indices, buffer.shape, strict=True):
            direct = _without_casts(index)
            if isinstance(direct, TensorLoad):
                limit(direct, int(extent) if direct.source in places else 1)
            else:
                structural_walk(index, (TensorLoad, lambda load: limit(load, 1)))

    def divide(node: Any) -> None:
        divisor = _without_casts(node.b)
        if isinstance(divisor, TensorLoad) and divisor.source in places:
            roles[places[divisor.source]].low = 1

    structural_walk(
        func.body,
        [
            (TensorLoad, lambda load: access(load.source, load.indices)),
            (BufferStore, lambda store: access(store.buffer, store.indices)),
            ((Div, Mod, FloorDiv, FloorMod), divide),
        ],
    )
    # A divisor that is also an index keeps the range of an index.
    return {
        name: IntegerRole(0 if role.high is not None else role.low, role.high)
        for name, role in roles.items()
    }


def _is_integer(buffer: Any) -> bool:
    return str(buffer.dtype).startswith(("int", "uint"))


def _without_casts(expression: Any) -> Any:
    while isinstance(expression, Cast):
        expression = expression.value
    return expression
