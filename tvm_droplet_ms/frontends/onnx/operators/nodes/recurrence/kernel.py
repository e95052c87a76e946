# SPDX-License-Identifier: Apache-2.0
"""The steps of a recurrent layer as one hand-scheduled kernel.

Separate kernels for the steps would cost a compilation for each step, and a launch for each
operator of a cell. Here a tile of hidden units keeps its gates in registers: it adds the product of
the old state to the product of the input, and applies the cell at once. The weights of a tile are
stored in the order in which the tile reads them. If a step is long enough, its tiles run in
parallel. Otherwise the two directions do.
"""

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from .cells import Cell
from .layer import WIDTH, Layer, Operands
from .steps import Steps


def recurrence(layer: Layer, cell: Cell, names: Sequence[str], *tensors: te.Tensor) -> list[Any]:
    """Compute all steps of a layer.

    ``names``: the names of the operands in ``tensors``, in the order of ``Operands``. Returns the
    states of all steps (steps, directions, batch, padded), the states after the last step
    (directions, batch, padded), and the cell states of an LSTM, of the same shape.
    """
    dtype = tensors[0].dtype
    last = (layer.directions, layer.batch, layer.padded)
    shapes = [(layer.steps, *last), last, *([last] if cell.kind == "LSTM" else [])]

    def generate(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        operands = Operands(**dict(zip(names, inputs, strict=True)))
        return _Kernel(layer, cell, operands, list(outputs), dtype).generate()

    outputs = te.extern(
        shapes, list(tensors), generate, dtype=[dtype] * len(shapes), name=cell.kind.lower()
    )
    return list(outputs)


_DOT = "llvm.x86.avx512.vpdpbusd.512"


class _Kernel(Steps):
    """The statements of one step of a tile."""

    def _phases(self) -> list[Callable[..., None]]:
        if self._cell.is_two_phase:
            return [self._gates_tile, self._candidate_tile]
        return [self._tile]

    def _products(
        self,
        step: Any,
        direction: Any,
        tile: Any,
        batches: Sequence[Any],
        gates: Sequence[int],
        source: Any,
    ) -> tuple[list[Any], list[list[Any]]]:
        """Sum the gates of a tile. Return the position in time and the sums of each sequence."""
        rows = [self._row(step, direction, batch) for batch in batches]
        sums = [[T.alloc_buffer([WIDTH], self._dtype, scope="local") for _ in gates] for _ in rows]
        for batch, row, buffers in zip(batches, rows, sums, strict=True):
            for gate, buffer in zip(gates, buffers, strict=True):
                with T.vectorized(0, WIDTH) as unit:
                    start = self._in.products[row, batch, direction, tile, gate, unit]
                    if self._cell.reset_after and gate == 2:
                        start = tirx.const(0.0, self._dtype)
                        if self._in.bias is not None:
                            start = self._in.bias[direction, tile, unit]
                    T.buffer_store(buffer, start, [unit])
        with T.serial(0, self._layer.hidden) as k:
            for position, gate in enumerate(gates):
                for batch, buffers in zip(batches, sums, strict=True):
                    buffer = buffers[position]
                    with T.vectorized(0, WIDTH) as unit:
                        weight = self._in.weights[direction, tile, k, gate, unit]
                        value = buffer[unit] + source(batch, k) * weight
                        T.buffer_store(buffer, value, [unit])
        return rows, sums

    def _byte_products(
        self, step: Any, direction: Any, tile: Any, batches: Sequence[Any]
    ) -> tuple[list[Any], list[list[Any]]]:
        """Like ``_products``, for states and weights in bytes, whose sums are exact."""
        gates = range(self._cell.gates)
        rows = [self._row(step, direction, batch) for batch in batches]
        exact, sums = (
            [[T.alloc_buffer([WIDTH], kind, scope="local") for _ in gates] for _ in rows]
            for kind in ("int32", self._dtype)
        )
        lanes = tirx.Ramp(0, 1, WIDTH)
        for gate in gates:
            for totals in exact:
                nothing = tirx.Broadcast(tirx.const(0, "int32"), WIDTH)
                T.buffer_store(totals[gate], nothing, [lanes])
        with T.serial(0, self._layer.padded // 4) as word:
            for gate in gates:
                weights = self._in.weights[direction, tile, word, gate, lanes]
                for batch, totals in zip(batches, exact, strict=True):
                    four = self._rounded.vload([direction, batch, 4 * word], "uint8x4")
                    four = tirx.Broadcast(tirx.reinterpret("int32", four), WIDTH)
                    pair = [tirx.reinterpret("int8x64", each) for each in (four, weights)]
                    dot = tirx.call_llvm_pure_intrin(
                        f"int32x{WIDTH}", _DOT, totals[gate][lanes], *pair
                    )
                    T.buffer_store(totals[gate], dot, [lanes])
        scale, point = self._steps[direction, 0], self._steps[direction, 1].astype("int32")
        for batch, row, totals, found in zip(batches, rows, exact, sums, strict=True):
            for gate in gates:
                with T.vectorized(0, WIDTH) as unit:
                    place = (direction, tile, gate, unit)
                    total = totals[gate][unit] - point * self._in.sums[place]
                    value = total.astype(self._dtype) * (scale * self._in.scales[place])
                    value = value + self._in.products[row, batch, direction, tile, gate, unit]
                    T.buffer_store(found[gate], value, [unit])
        return rows, sums

    def _branches(self, direction: Any, body: Callable[[int], None]) -> None:
        """Generate ``body`` for the activations of each direction, or once if they are equal."""
        functions = self._cell.activations
        if len(set(functions)) == 1:
            body(0)
            return
        for number in range(len(functions)):
            with T.If(direction == number), T.Then():
                body(number)

    def _store(
        self, step: Any, direction: Any, batch: Any, row: Any, unit: Any, state: Any
    ) -> None:
        """Store a new state. A finished sequence keeps its state, and its output is zero."""
        output = state
        if self._in.lengths is not None:
            runs = step < self._in.lengths[batch]
            old = self._old(step, direction)(batch, unit)
            zero = tirx.const(0.0, self._dtype)
            state, output = tirx.Select(runs, state, old), tirx.Select(runs, state, zero)
        T.buffer_store(self._state, state, [(step + 1) % 2, direction, batch, unit])
        T.buffer_store(self._all, output, [row, direction, batch, unit])

    def _tile(self, step: Any, direction: Any, tile: Any, batches: Sequence[Any]) -> None:
        """A whole step of one tile."""
        gates = range(self._cell.gates)
        source = self._old(step, direction)
        if self._cell.rounds_states:

            def source(batch: Any, unit: Any) -> Any:
                return self._rounded[direction, batch, unit]

        if self._in.scales is not None:
            rows, sums = self._byte_products(step, direction, tile, batches)
        else:
            rows, sums = self._products(step, direction, tile, batches, gates, source)

        def body(number: int) -> None:
            for batch, row, buffers in zip(batches, rows, sums, strict=True):
                with T.vectorized(0, WIDTH) as unit:
                    where = (step, direction, batch, row, tile * WIDTH + unit)
                    values = [buffer[unit] for buffer in buffers]
                    state = self._cell_state(number, where, values, tile, unit)
                    self._store(*where, state)

        self._branches(direction, body)

    def _cell_state(
        self, number: int, where: tuple[Any, ...], sums: list[Any], tile: Any, unit: Any
    ) -> Any:
        step, direction, batch, row, index = where
        cell = self._cell
        if cell.kind == "RNN":
            return cell.rnn(number, sums[0])
        if cell.kind == "GRU":
            update, reset = (cell.gru_gate(number, each) for each in sums[:2])
            fresh = self._in.products[row, batch, direction, tile, 2, unit] + reset * sums[2]
            return cell.gru_state(number, update, fresh, self._old(step, direction)(batch, index))
        peephole = None
        if self._in.peephole is not None:
            peephole = [self._in.peephole[direction, tile, each, unit] for each in range(3)]
        place = [direction, batch, index]
        memory, hidden = cell.lstm(number, sums, self._memory[tuple(place)], peephole)
        return self._lstm_hidden(step, batch, place, memory, hidden)

    def _lstm_hidden(
        self, step: Any, batch: Any, place: list[Any], memory: Any, hidden: Callable[[Any], Any]
    ) -> Any:
        """Store the cell state, and return the hidden state that follows from it."""
        if self._in.lengths is not None:
            runs = step < self._in.lengths[batch]
            memory = tirx.Select(runs, memory, self._memory[tuple(place)])
        T.buffer_store(self._memory, memory, place)
        return hidden(self._memory[tuple(place)])

    def _gates_tile(self, step: Any, direction: Any, tile: Any, batches: Sequence[Any]) -> None:
        """The update gate of a GRU, and the old state times the reset gate."""
        old = self._old(step, direction)
        _, sums = self._products(step, direction, tile, batches, (0, 1), old)

        def body(number: int) -> None:
            for batch, (update, reset) in zip(batches, sums, strict=True):
                with T.vectorized(0, WIDTH) as unit:
                    place = [direction, batch, tile * WIDTH + unit]
                    gate = self._cell.gru_gate(number, reset[unit]) * old(batch, place[2])
                    T.buffer_store(self._reset, gate, place)
                    T.buffer_store(self._update, self._cell.gru_gate(number, update[unit]), place)

        self._branches(direction, body)

    def _candidate_tile(self, step: Any, direction: Any, tile: Any, batches: Sequence[Any]) -> None:
        """The new state of a GRU, once all reset gates are known."""

        def reset(batch: Any, unit: Any) -> Any:
            return self._reset[direction, batch, unit]

        rows, sums = self._products(step, direction, tile, batches, (2,), reset)
        old = self._old(step, direction)

        def body(number: int) -> None:
            for batch, row, (fresh,) in zip(batches, rows, sums, strict=True):
                with T.vectorized(0, WIDTH) as unit:
                    index = tile * WIDTH + unit
                    update = self._update[direction, batch, index]
                    state = self._cell.gru_state(number, update, fresh[unit], old(batch, index))
                    self._store(step, direction, batch, row, index, state)

        self._branches(direction, body)
