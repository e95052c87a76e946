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
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from .cells import WIDTH, Cell, Layer, Operands

_PARALLEL_STEP = {1: 1 << 19, 2: 1 << 21}
"""Minimum number of multiplications in a step of a direction for its tiles to run in parallel, by
the number of directions. The threads synchronize after each step, which takes some microseconds on
an idle machine and as many milliseconds on a busy one. Two directions never synchronize."""

_ACCUMULATORS = 8
"""Number of vectors that a tile accumulates at a time. Each gate has at least one."""

_DOT = "llvm.x86.avx512.vpdpbusd.512"


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


class _Kernel:
    """The loops over steps, directions, tiles and sequences.

    - ``operands``: the buffers of the inputs.
    - ``outputs``: the buffers of the outputs.
    - ``dtype``: the element type.
    """

    def __init__(
        self, layer: Layer, cell: Cell, operands: Operands, outputs: list[Any], dtype: str
    ) -> None:
        self._layer = layer
        self._cell = cell
        self._in = operands
        self._all, self._last = outputs[:2]
        self._memory: Any = outputs[2] if len(outputs) > 2 else None
        self._dtype, self._zero = dtype, tirx.const(0.0, dtype)
        work = layer.batch * layer.hidden * layer.hidden * cell.gates
        self._is_parallel_inside = work >= _PARALLEL_STEP[layer.directions]

    def generate(self) -> Any:
        """Generate all statements, and return the body of the kernel."""
        layer, is_bytes = self._layer, self._in.scales is not None
        with IRBuilder() as builder:
            with T.attr(0, "recurrence", 1):  # The builder requires a single statement.
                shape = (2, layer.directions, layer.batch, layer.padded)
                self._state = T.alloc_buffer(shape, self._dtype)
                if self._cell.is_two_phase:
                    self._reset = T.alloc_buffer(shape[1:], self._dtype)
                    self._update = T.alloc_buffer(shape[1:], self._dtype)
                if self._cell.rounds_states:
                    self._rounded = T.alloc_buffer(shape[1:], "uint8" if is_bytes else self._dtype)
                    self._steps = T.alloc_buffer((layer.directions, 2), self._dtype)
                if self._is_parallel_inside:
                    self._start(None)
                    with T.serial(0, layer.steps) as step:
                        self._step(step, None)
                    self._finish(None)
                elif layer.directions > 1:
                    with T.parallel(0, layer.directions) as direction:
                        self._whole(direction)
                else:
                    self._whole(tirx.const(0, "int32"))
            return builder.get()

    def _whole(self, direction: Any) -> None:
        """All steps of a direction."""
        self._start(direction)
        with T.serial(0, self._layer.steps) as step:
            self._step(step, direction)
        self._finish(direction)

    def _each_direction(self, direction: Any, body: Callable[[Any], None]) -> None:
        """Loop over the directions if none is given."""
        if direction is not None:
            body(direction)
            return
        with T.serial(0, self._layer.directions) as each:
            body(each)

    def _each_unit(self, direction: Any, body: Callable[[Any, Any, Any], None]) -> None:
        """Loop over the directions if none is given, the batch and the units."""
        layer = self._layer

        def inner(direction: Any) -> None:
            with T.serial(0, layer.batch * layer.tiles) as row:
                batch, tile = row // layer.tiles, row % layer.tiles
                with T.vectorized(0, WIDTH) as unit:
                    body(direction, batch, tile * WIDTH + unit)

        self._each_direction(direction, inner)

    def _round_states(self, step: Any, direction: Any) -> None:
        """Round a direction's old states to bytes, as ``DynamicQuantizeLinear`` does.

        The bytes or their dequantized values are stored.
        """
        zero = self._zero

        def inner(direction: Any) -> None:
            ends = [T.alloc_buffer([WIDTH], self._dtype, scope="local") for _ in range(2)]
            joins = (tirx.min, tirx.max)
            for end in ends:
                with T.vectorized(0, WIDTH) as lane:
                    T.buffer_store(end, zero, [lane])

            def widen(direction: Any, batch: Any, unit: Any) -> None:
                state = self._state[step % 2, direction, batch, unit]
                if self._layer.padded > self._layer.hidden:
                    state = tirx.Select(unit < self._layer.hidden, state, zero)
                for end, join in zip(ends, joins, strict=True):
                    T.buffer_store(end, join(end[unit % WIDTH], state), [unit % WIDTH])

            self._each_unit(direction, widen)
            with T.serial(1, WIDTH) as lane:
                for end, join in zip(ends, joins, strict=True):
                    T.buffer_store(end, join(end[0], end[lane]), [0])
            span = ends[1][0] - ends[0][0]
            scale = tirx.Select(span > zero, span / 255.0, tirx.const(1.0, self._dtype))
            T.buffer_store(self._steps, scale, [direction, 0])
            scale, point = (self._steps[direction, each] for each in range(2))
            T.buffer_store(self._steps, _byte(tirx.nearbyint(-ends[0][0] / scale)), [direction, 1])

            def round_one(direction: Any, batch: Any, unit: Any) -> None:
                state = self._state[step % 2, direction, batch, unit]
                byte = _byte(tirx.nearbyint(state / scale) + point)
                is_byte = self._in.scales is not None
                value = byte.astype("uint8") if is_byte else (byte - point) * scale
                T.buffer_store(self._rounded, value, [direction, batch, unit])

            self._each_unit(direction, round_one)

        self._each_direction(direction, inner)

    def _start(self, direction: Any) -> None:
        """Store the initial states. As in ONNX Runtime, a sequence without steps has zeros."""

        def first(given: Any, b: Any) -> Any:
            if self._in.lengths is None:
                return given
            return tirx.Select(self._in.lengths[b] > 0, given, self._zero)

        def body(d: Any, b: Any, h: Any) -> None:
            T.buffer_store(self._state, first(self._in.state[d, b, h], b), [0, d, b, h])
            if self._memory is not None:
                T.buffer_store(self._memory, first(self._in.memory[d, b, h], b), [d, b, h])

        self._each_unit(direction, body)

    def _finish(self, direction: Any) -> None:
        parity = self._layer.steps % 2

        def body(d: Any, b: Any, h: Any) -> None:
            T.buffer_store(self._last, self._state[parity, d, b, h], [d, b, h])

        self._each_unit(direction, body)

    def _step(self, step: Any, direction: Any) -> None:
        if self._cell.rounds_states:
            self._round_states(step, direction)
        for phase in self._phases():
            if direction is None:
                with T.parallel(0, self._layer.directions * self._layer.tiles) as index:
                    self._batches(phase, step, index // self._layer.tiles, index)
            else:
                with T.serial(0, self._layer.tiles) as tile:
                    self._batches(phase, step, direction, tile)

    def _batches(self, phase: Callable[..., None], step: Any, direction: Any, index: Any) -> None:
        """Run a phase for the whole batch, some sequences at a time."""
        layer, tile = self._layer, index % self._layer.tiles
        most = max(_ACCUMULATORS // self._cell.gates, 1)
        size = max(each for each in range(1, most + 1) if layer.batch % each == 0)
        with T.serial(0, layer.batch // size) as block:
            phase(step, direction, tile, [block * size + each for each in range(size)])

    def _row(self, step: Any, direction: Any, batch: Any) -> Any:
        """The position in time of a step. A sequence is reversed within its own length."""
        layer = self._layer
        if not any(layer.reverse):
            return step
        if self._in.lengths is None:
            back = layer.steps - 1 - step
        else:
            length = self._in.lengths[batch]
            back = tirx.Select(step < length, length - 1 - step, step)
        return back if all(layer.reverse) else tirx.Select(direction == 1, back, step)

    def _old(self, step: Any, direction: Any) -> Callable[[Any, Any], Any]:
        return lambda batch, unit: self._state[step % 2, direction, batch, unit]

    def _of_direction(self, buffer: Any, direction: Any) -> Callable[[Any, Any], Any]:
        return lambda batch, unit: buffer[direction, batch, unit]

    def _phases(self) -> list[Callable[..., None]]:
        """The consecutive phases of a step, each of which processes one tile."""
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
                        bias = self._in.bias
                        start = self._zero if bias is None else bias[direction, tile, unit]
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
            state, output = tirx.Select(runs, state, old), tirx.Select(runs, state, self._zero)
        T.buffer_store(self._state, state, [(step + 1) % 2, direction, batch, unit])
        T.buffer_store(self._all, output, [row, direction, batch, unit])

    def _tile(self, step: Any, direction: Any, tile: Any, batches: Sequence[Any]) -> None:
        """A whole step of one tile."""
        gates = range(self._cell.gates)
        source = self._old(step, direction)
        if self._cell.rounds_states:
            source = self._of_direction(self._rounded, direction)
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
        # Store the cell state; the hidden state follows from it.
        place = [direction, batch, index]
        old = self._memory[tuple(place)]
        memory, hidden = cell.lstm(number, sums, old, peephole)
        if self._in.lengths is not None:
            memory = tirx.Select(step < self._in.lengths[batch], memory, old)
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
        reset = self._of_direction(self._reset, direction)
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


def _byte(value: Any) -> Any:
    least, most = (tirx.const(each, value.ty.dtype) for each in (0.0, 255.0))
    return tirx.max(tirx.min(value, most), least)
