# SPDX-License-Identifier: Apache-2.0
"""A check that a compiled model still computes what the imported one does."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tvm.s_tir.meta_schedule.database import MemoryDatabase
from tvm.target import Target

from ...deviation import element_scales, largest_deviation, moved_by_rounding, noise
from ...frontends.imported import (
    Arrays,
    ImportedModel,
    InputSpec,
    Reference,
    first_line,
    run_reference,
)
from ...session.errors import ModelError
from ...session.given_inputs import given_values
from ..compile.compiled_model import CompiledModel
from ..compile.lowering import build, lower
from .output_bounds import Bound, output_bounds, output_steps

logger = logging.getLogger(__name__)

INPUT_SETS = 3
"""Random inputs that outputs are compared on."""

EXACT_TOLERANCE = 1e-4
"""The rounding of float32 sums that are added up in another order, relative to the scale of the
row; a hundred times what was seen on the models of the tests."""

WINOGRAD_TOLERANCE = 1e-3
"""The same where Winograd convolutions are allowed: one with 4x4 tiles has an error of 1e-5."""

HALF_TOLERANCE = 0.1
"""The same where products are of bfloat16, whose rounding is 2e-3 of a number: 0.002 to 0.06 were
seen on whole models, and 0.003 to 0.09 of OpenVINO in bfloat16."""

MOVED_RUNS = 3
"""Runs of the reference with moved inputs, for each set."""

ROUNDINGS = 4
"""Units of the last place of float32, at its bound, that an output may be off by: ONNX Runtime's
sigmoid of -12 is 3e-8 from the true one, half of a unit at 1, and 5e-3 of its value."""

_UNIT = ROUNDINGS * float(np.finfo(np.float32).eps)

ONE_STEP = 1.01
"""The steps of a quantized output that an element may be off by: one, and its rounding."""

FAINT = 1e-30
"""The least of the largest output: with a smaller one, nothing was checked."""

_HALVES = {"float16": (2.0**-10, 2.0**-24), "bfloat16": (2.0**-7, 2.0**-133)}
"""The distance of two neighbors: relative to their size, and the least one."""


@dataclass(frozen=True)
class OutputCheck:
    """Sets of inputs, and the outputs of a reference to compare with.

    - ``tolerance``: the largest deviation that passes.
    - ``bounds``: what no output can exceed by its making, such as 1 for a sigmoid; empty for none.
    - ``steps``: what two values of a quantized output differ by; empty for none.
    - ``is_strict``: whether what rounding moves in the reference is a deviation too.
    """

    reference: Reference
    inputs: tuple[tuple[np.ndarray, ...], ...]
    expected: tuple[Arrays, ...]
    tolerance: float
    bounds: tuple[Bound | None, ...] = ()
    steps: tuple[float | None, ...] = ()
    is_strict: bool = False
    # Not that of the check that one is made of: its expected outputs are others.
    _noise: dict[int, list[np.ndarray]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def deviation(
        self, run: Callable[[Sequence[np.ndarray]], Arrays], sets: Sequence[int] | None = None
    ) -> float:
        """The largest deviation of a model's outputs in some sets of inputs; None for all.

        They are compared at the scales of ``element_scales``. Where that refuses them, the
        reference is run on inputs, and with weights, that are moved by rounding errors: what it
        moves itself is no deviation (``noise``).
        """
        numbers = range(len(self.inputs)) if sets is None else sets
        return max(self._deviation(number, run(self.inputs[number])) for number in numbers)

    def agrees(
        self, run: Callable[[Sequence[np.ndarray]], Arrays], sets: Sequence[int] | None = None
    ) -> bool:
        """True if the deviation is within the tolerance; see ``deviation``."""
        return self.deviation(run, sets) <= self.tolerance

    def steps_off(self, run: Callable[[Sequence[np.ndarray]], Arrays]) -> dict[int, "np.ndarray"]:
        """The quantized outputs, by number: how many steps each element is off, in all sets."""
        numbers = [number for number, step in enumerate(self._steps) if step]
        found: dict[int, list[np.ndarray]] = {number: [] for number in numbers}
        for inputs, expected in zip(self.inputs, self.expected, strict=True) if numbers else ():
            outputs = run(inputs)
            for number in numbers:
                apart = outputs[number].astype(np.float64) - expected[number].astype(np.float64)
                found[number].append(np.rint(np.abs(apart) / self._steps[number]).reshape(-1))
        return {number: np.concatenate(each) for number, each in found.items()}

    def excuse(self, number: int, others: Sequence[Arrays]) -> None:
        """Take how other runs of the same function on a set of inputs differ for rounding.

        What moves by less than ``EXACT_TOLERANCE`` of its scale is not ill-conditioned: there the
        tolerance decides, however tight it is. Outputs of other shapes, whose extents depend on
        data, say nothing.
        """
        shapes = [array.shape for array in self.expected[number]]
        others = [each for each in others if [array.shape for array in each] == shapes]
        scales, before = self._scales[number], self._noise.get(number)
        found = [
            np.where(moved > EXACT_TOLERANCE * scale, moved, 0.0)
            for expected, scale, *each in zip(self.expected[number], scales, *others, strict=True)
            for moved in [noise(expected, each, scale)]
        ]
        if before is not None:
            found = [np.maximum(*pair) for pair in zip(found, before, strict=True)]
        self._noise[number] = found

    @property
    def is_noisy(self) -> bool:
        """True if the reference itself moves more than the tolerance, where that was looked at."""
        return any(
            bool((moved > self.tolerance * scale).any())
            for number, each in self._noise.items()
            for moved, scale in zip(each, self._scales[number], strict=True)
        )

    @property
    def unchecked(self) -> list[int]:
        """The outputs that are 0, almost 0 or not finite for all inputs: not checked."""
        faint = []
        for output, bound in enumerate(self._bounds):
            arrays = [each[output].astype(np.float64) for each in self.expected]
            if arrays[0].size and all(_is_faint(array, bound) for array in arrays):
                faint.append(output)
        return faint

    @property
    def _bounds(self) -> Sequence[Bound | None]:
        return self.bounds or (None,) * len(self.expected[0])

    @property
    def _steps(self) -> Sequence[float]:
        """The step of each output, 0 where it has none."""
        return [step or 0.0 for step in self.steps or (None,) * len(self.expected[0])]

    @cached_property
    def _scales(self) -> list[list[np.ndarray]]:
        """The scale of each element, at least that of the rounding at the output's bound.

        And that of the last place of a half: what lies between two becomes one or the other.
        """
        return [
            [
                np.maximum(
                    np.maximum(element_scales(array), _last_place(array) / self.tolerance),
                    np.maximum(_UNIT * _floor(bound, array), ONE_STEP * step) / self.tolerance,
                )
                for array, bound, step in zip(arrays, self._bounds, self._steps, strict=True)
            ]
            for arrays in self.expected
        ]

    def _deviation(self, number: int, outputs: Arrays) -> float:
        expected = self.expected[number]
        off = largest_deviation(outputs, expected, self._allowed(number))
        if self.is_strict or off <= self.tolerance or number in self._noise:
            return off
        moved = moved_runs(self.reference, self.inputs[number])
        self.excuse(number, moved)
        return largest_deviation(outputs, expected, self._allowed(number))

    def _allowed(self, number: int) -> list[np.ndarray]:
        """The difference that is a deviation of 1, for each element."""
        scales, rounding = self._scales[number], self._noise.get(number)
        if rounding is None:
            return scales
        pairs = zip(scales, rounding, strict=True)
        return [np.maximum(scale, moved / self.tolerance) for scale, moved in pairs]


def _last_place(array: np.ndarray) -> np.ndarray:
    """What two neighbors differ by at most, for each element of halves; 0 for other types."""
    unit, least = _HALVES.get(str(array.dtype), (0.0, 0.0))
    wide = np.asarray(array, dtype=np.float64)
    return unit * np.where(np.isfinite(wide), np.abs(wide), 0.0) + least


def _floor(bound: Bound | None, expected: np.ndarray) -> np.ndarray:
    return np.zeros(()) if bound is None else bound.floor(expected)


def _is_faint(array: np.ndarray, bound: Bound | None) -> bool:
    """True of an output that is 0, but for what is below ``FAINT`` or the rounding at its bound."""
    floor = np.maximum(FAINT, _UNIT * _floor(bound, array))
    return bool(((np.abs(array) <= floor) | ~np.isfinite(array)).all())


def moved_runs(
    reference: Reference, inputs: Sequence[np.ndarray], runs: int = MOVED_RUNS
) -> list[Arrays]:
    """Run the reference on inputs, and with weights, that are moved by rounding errors.

    All that is computed of them is rounded otherwise. Each number of a floating-point input becomes
    one of its neighbors, by chance. Inside a quantized model a difference in the last place may
    become a whole step of the quantization: there an input is moved by half a step. An input of
    whole numbers stays: as floats they may be ids, and the neighbor of one is another one below. A
    run that fails, of a value that is an index or a length, says nothing and is left out.
    """
    generator = np.random.default_rng(0)

    def moved_inputs() -> list[np.ndarray]:
        return [
            moved_by_rounding(array, generator, reference.rounding) if _may_move(array) else array
            for array in inputs
        ]

    found: list[Arrays] = []
    # The errors of ONNX Runtime are of a dozen classes.
    try:
        has_moving = any(_may_move(array) for array in inputs)
        if has_moving:
            found += [reference.run(moved_inputs()) for _ in range(runs)]
        if reference.with_moved_weights is not None:
            for seed in range(1 if has_moving else runs):
                found.append(reference.with_moved_weights(seed)(moved_inputs()))
    except Exception as error:
        logger.info("no run with moved inputs or weights: %s", first_line(error))
    return found


def _may_move(array: np.ndarray) -> bool:
    return array.dtype.kind == "f" and not bool((array == np.rint(array)).all())


def make_check(
    imported: ImportedModel,
    target: Target,
    tolerance: float,
    seed: int,
    given: Mapping[str, np.ndarray] | None = None,
) -> OutputCheck:
    """Run the reference on random inputs, and on the given ones, which are the same in every set.

    A model without a reference is compiled as it was imported, and run on one set of inputs only:
    it is slow without schedules. Raises ``ModelError`` if a given value does not fit, or the
    reference cannot run on the inputs.
    """
    values = _checked(given or {}, imported.inputs)
    generator = np.random.default_rng(seed)
    count = INPUT_SETS if imported.reference else 1
    inputs = tuple(
        tuple(values.get(spec.name, spec.random(generator)) for spec in imported.inputs)
        for _ in range(count)
    )
    reference = imported.reference or untouched(imported, target)
    return OutputCheck(
        reference,
        inputs,
        tuple(run_reference(reference, arrays) for arrays in inputs),
        tolerance,
        output_bounds(imported.mod),
        output_steps(imported.mod),
    )


def _checked(given: Mapping[str, np.ndarray], inputs: Sequence[InputSpec]) -> dict[str, np.ndarray]:
    try:
        return given_values(
            given, {spec.name: (tuple(spec.shape), np.dtype(spec.dtype)) for spec in inputs}
        )
    except ValueError as error:
        raise ModelError(str(error)) from error


def untouched(imported: ImportedModel, target: Target) -> Reference:
    """The imported module, compiled without any pass of ours and without schedules."""
    mod = imported.original or imported.mod
    executable = build(lower(mod, target, is_reference=True), MemoryDatabase(), target)
    return Reference("the untouched model", CompiledModel(executable))
