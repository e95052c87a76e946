# SPDX-License-Identifier: Apache-2.0
"""The cells of recurrent layers: how a hidden unit combines its gates in one step.

ONNX's operators ``RNN``, ``GRU`` and ``LSTM`` define the equations and the order of the gates.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tvm import tirx

from .activations import Function

Kind = Literal["RNN", "GRU", "LSTM"]

GATES: dict[str, int] = {"RNN": 1, "GRU": 3, "LSTM": 4}
"""The number of gates of each cell: h for RNN; z, r, h for GRU; i, o, f, c for LSTM."""


@dataclass(frozen=True)
class Cell:
    """The properties of a kind of cell.

    - ``kind``: "RNN", "GRU" or "LSTM".
    - ``activations``: for each direction: f for RNN; f and g for GRU; f, g and h for LSTM.
    - ``clip``: the gates are clipped to [``-clip``, ``clip``] before their activations.
    - ``reset_after``: GRU only: whether the reset gate is applied to the product
      (``linear_before_reset``).
    - ``input_forget``: LSTM only: whether the forget gate is 1 minus the input gate.
    - ``rounds_states``: LSTM only: whether the product is of states rounded to bytes.
    """

    kind: Kind
    activations: tuple[tuple[Function, ...], ...]
    clip: float | None = None
    reset_after: bool = False
    input_forget: bool = False
    rounds_states: bool = False

    @property
    def gates(self) -> int:
        """The number of gates."""
        return GATES[self.kind]

    @property
    def is_two_phase(self) -> bool:
        """True if the candidate's product needs the reset gates of all units."""
        return self.kind == "GRU" and not self.reset_after

    def limited(self, gate: Any) -> Any:
        """Clip a gate."""
        if self.clip is None:
            return gate
        bound = tirx.const(self.clip, gate.ty.dtype)
        return tirx.max(-bound, tirx.min(bound, gate))

    def rnn(self, direction: int, gate: Any) -> Any:
        """The new state of a plain cell."""
        (f,) = self.activations[direction]
        return f(self.limited(gate))

    def gru_gate(self, direction: int, gate: Any) -> Any:
        """The update gate or the reset gate."""
        return self.activations[direction][0](self.limited(gate))

    def gru_state(self, direction: int, update: Any, candidate: Any, old: Any) -> Any:
        """The new state of a GRU, from its update gate and its candidate before the activation."""
        g = self.activations[direction][1]
        one = tirx.const(1.0, old.ty.dtype)
        return (one - update) * g(self.limited(candidate)) + update * old

    def lstm(
        self, direction: int, gates: Sequence[Any], old: Any, peephole: Sequence[Any] | None
    ) -> tuple[Any, Callable[[Any], Any]]:
        """The new cell state of an LSTM, and the hidden state as a function of the cell state.

        ``gates``: the sums i, o, f and c. ``peephole``: the weights of the cell state in i, o and
        f.
        """
        f, g, h = self.activations[direction]
        enter, leave, forget, fresh = gates
        if peephole is not None:
            enter, forget = enter + peephole[0] * old, forget + peephole[2] * old
        entering = f(self.limited(enter))
        one = tirx.const(1.0, old.ty.dtype)
        kept = one - entering if self.input_forget else f(self.limited(forget))
        state = kept * old + entering * g(self.limited(fresh))

        def hidden(state: Any) -> Any:
            gate = leave if peephole is None else leave + peephole[1] * state
            return f(self.limited(gate)) * h(state)

        return state, hidden
