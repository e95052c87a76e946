# SPDX-License-Identifier: Apache-2.0
"""The loops of a recurrent layer's kernel."""

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from .cells import Cell
from .layer import WIDTH, Layer, Operands

_PARALLEL_STEP = {1: 1 << 19, 2: 1 << 21}
"""Minimum number of multiplications in a step of a direction for its tiles to run in parallel, by
the number of directions. The threads synchronize after each step, which takes some microseconds on
an idle machine and as many milliseconds on a busy one. Two directions never synchronize."""

_ACCUMULATORS = 8
"""Number of vectors that a tile accumulates at a time. Each gate has at least one."""


class Steps:
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
        self._dtype = dtype
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
        zero = tirx.const(0.0, self._dtype)

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
            return tirx.Select(self._in.lengths[b] > 0, given, tirx.const(0.0, self._dtype))

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

    def _phases(self) -> list[Callable[..., None]]:
        """The consecutive phases of a step, each of which processes one tile."""
        raise NotImplementedError

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


def _byte(value: Any) -> Any:
    least, most = (tirx.const(each, value.ty.dtype) for each in (0.0, 255.0))
    return tirx.max(tirx.min(value, most), least)
