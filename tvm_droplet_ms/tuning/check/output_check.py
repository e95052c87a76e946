# SPDX-License-Identifier: Apache-2.0
"""A check that a compiled model still computes the imported model's function."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from tvm.s_tir.meta_schedule.database import MemoryDatabase
from tvm.target import Target

from ...frontends.imported import Arrays, ImportedModel, Reference, Run, run_reference
from ...measure.deviation import element_scales, largest_deviation, moved_by_rounding, noise
from ...session.errors import ModelError, first_line
from ...session.given_inputs import given_values
from ..compile.compiled_model import CompiledModel
from ..compile.lowering import build, lower
from .output_bounds import Bound, output_bounds, output_steps

logger = logging.getLogger(__name__)

INPUT_SETS = 3
"""Number of random input sets for comparing outputs."""

EXACT_TOLERANCE = 1e-4
"""The tolerance for float32 sums in another order, relative to the scale of the row; a hundred
times the deviation on the models of the tests."""

WINOGRAD_TOLERANCE = 1e-3
"""The same with Winograd convolutions: one with 4x4 tiles has an error of 1e-5."""

HALF_TOLERANCE = 0.1
"""The same with bfloat16 products, which have a relative rounding error of 2e-3. Whole models
deviated by 0.002 to 0.06, and OpenVINO in bfloat16 by 0.003 to 0.09."""

MOVED_RUNS = 3
"""Runs of the reference with perturbed inputs, for each input set."""

ROUNDINGS = 4
"""Allowed error of an output in float32 units in the last place at its bound. ONNX Runtime's
sigmoid of -12 is off by 3e-8, which is half a unit at 1, and 5e-3 of its value."""

_UNIT = ROUNDINGS * float(np.finfo(np.float32).eps)

ONE_STEP = 1.01
"""Allowed error of a quantized output in steps: one step, plus its rounding."""

FAINT = 1e-30
"""An output is unchecked if its largest magnitude is at most this."""

_HALVES = {"float16": (2.0**-10, 2.0**-24), "bfloat16": (2.0**-7, 2.0**-133)}
"""The gap between adjacent values: relative to their magnitude, and the minimum gap."""


@dataclass(frozen=True)
class OutputCheck:
    """Sets of inputs, and the reference outputs to compare with.

    - ``tolerance``: the largest deviation that passes.
    - ``bounds``: the bound of each output, such as 1 for a sigmoid; empty for none.
    - ``steps``: the step between values of each quantized output; empty for none.
    - ``is_strict``: whether to count deviations that rounding also causes in the reference.
    """

    reference: Reference
    inputs: tuple[tuple[np.ndarray, ...], ...]
    expected: tuple[Arrays, ...]
    tolerance: float
    bounds: tuple[Bound | None, ...] = ()
    steps: tuple[float | None, ...] = ()
    is_strict: bool = False
    # ``replace`` does not copy this: the new check may have other expected outputs.
    _noise: dict[int, list[np.ndarray]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def deviation(self, run: Run, sets: Sequence[int] | None = None) -> float:
        """Return the largest deviation of a model's outputs in some input sets; None for all sets.

        The outputs are compared at the scales of ``element_scales``. If they deviate too much, the
        reference runs on inputs and with weights that are perturbed by rounding errors. A change
        that this causes in the reference is not a deviation (``noise``).
        """
        numbers = range(len(self.inputs)) if sets is None else sets
        return max(self._deviation(number, run(self.inputs[number])) for number in numbers)

    def agrees(self, run: Run, sets: Sequence[int] | None = None) -> bool:
        """Return whether the deviation is within the tolerance; see ``deviation``."""
        return self.deviation(run, sets) <= self.tolerance

    def require(self, run: Run, library: Path, since: str) -> float:
        """Return the deviation of a library. Raises ``RuntimeError`` if it exceeds the tolerance.

        ``since``: what was done with the model since its outputs agreed.
        """
        deviation = self.deviation(run)
        if deviation > self.tolerance:
            raise RuntimeError(
                f"the outputs of {library} differ from {self.reference.name} by {deviation:.1e} of "
                f"its scale, where the same model gave the right ones before it was {since}: "
                "please report the model"
            )
        return deviation

    def steps_off(self, run: Run) -> dict[int, "np.ndarray"]:
        """Return each element's error in steps over all sets, by index of the quantized output."""
        numbers = [number for number, step in enumerate(self._steps) if step]
        found: dict[int, list[np.ndarray]] = {number: [] for number in numbers}
        for inputs, expected in zip(self.inputs, self.expected, strict=True) if numbers else ():
            outputs = run(inputs)
            for number in numbers:
                apart = outputs[number].astype(np.float64) - expected[number].astype(np.float64)
                found[number].append(np.rint(np.abs(apart) / self._steps[number]).reshape(-1))
        return {number: np.concatenate(each) for number, each in found.items()}

    def excuse(self, number: int, others: Sequence[Arrays]) -> None:
        """Treat the differences of other runs of the same function on an input set as rounding.

        ``number``: the index of the input set. An element that changes by less than
        ``EXACT_TOLERANCE`` of its scale is not ill-conditioned: there the tolerance decides,
        however tight it is. Runs whose outputs have other shapes, due to data-dependent extents,
        are ignored.
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
        """Whether rounding changes the reference by more than the tolerance, where tested."""
        return any(
            bool((moved > self.tolerance * scale).any())
            for number, each in self._noise.items()
            for moved, scale in zip(each, self._scales[number], strict=True)
        )

    @property
    def unchecked(self) -> list[int]:
        """The unchecked outputs: they are 0, almost 0 or not finite for all inputs."""
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
        """The step of each output; 0 for outputs that are not quantized."""
        return [step or 0.0 for step in self.steps or (None,) * len(self.expected[0])]

    @cached_property
    def _scales(self) -> list[list[np.ndarray]]:
        """The scale of each element.

        The scale tolerates at least the rounding at the output's bound, ``ONE_STEP`` of a quantized
        output, and the last place of a half: a value between two halves may round to either.
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
        """Return the difference that counts as a deviation of 1, for each element."""
        scales, rounding = self._scales[number], self._noise.get(number)
        if rounding is None:
            return scales
        pairs = zip(scales, rounding, strict=True)
        return [np.maximum(scale, moved / self.tolerance) for scale, moved in pairs]


def _last_place(array: np.ndarray) -> np.ndarray:
    """Return the gap between adjacent values at each element of a half type; 0 for other types."""
    unit, least = _HALVES.get(str(array.dtype), (0.0, 0.0))
    wide = np.asarray(array, dtype=np.float64)
    return unit * np.where(np.isfinite(wide), np.abs(wide), 0.0) + least


def _floor(bound: Bound | None, expected: np.ndarray) -> np.ndarray:
    return np.zeros(()) if bound is None else bound.floor(expected)


def _is_faint(array: np.ndarray, bound: Bound | None) -> bool:
    """Return whether an output is zero up to ``FAINT`` or the rounding at its bound."""
    floor = np.maximum(FAINT, _UNIT * _floor(bound, array))
    return bool(((np.abs(array) <= floor) | ~np.isfinite(array)).all())


def moved_runs(
    reference: Reference, inputs: Sequence[np.ndarray], runs: int = MOVED_RUNS
) -> list[Arrays]:
    """Run the reference on inputs, and with weights, that are perturbed by rounding errors.

    All intermediate results are then rounded differently. Each element of a floating-point input
    becomes one of its two neighbors at random. Inside a quantized model, a difference in the last
    place may become a whole quantization step: there an input is moved by half a step. An input of
    whole numbers is not perturbed: its floats may be ids, and the neighbor below an id truncates to
    another id. A failed run, such as on a perturbed index or length, is left out.
    """
    generator = np.random.default_rng(0)

    def moved_inputs() -> list[np.ndarray]:
        return [
            moved_by_rounding(array, generator, reference.rounding) if _may_move(array) else array
            for array in inputs
        ]

    found: list[Arrays] = []
    # ONNX Runtime raises about a dozen error classes.
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
    """Run the reference on random input sets; given values are the same in every set.

    A model without a reference is compiled as imported and runs on only one input set, because it
    is slow without schedules. Raises ``ModelError`` if a given value does not fit, or the reference
    cannot run on the inputs.
    """
    try:
        values = given_values(
            given or {},
            {one.name: (tuple(one.shape), np.dtype(one.dtype)) for one in imported.inputs},
        )
    except ValueError as error:
        raise ModelError(str(error)) from error
    generator = np.random.default_rng(seed)
    count = INPUT_SETS if imported.reference else 1
    inputs = tuple(
        tuple(values.get(spec.name, spec.random(generator)) for spec in imported.inputs)
        for _ in range(count)
    )
    reference = imported.reference or untouched(imported, target)
    expected = tuple(run_reference(reference, arrays) for arrays in inputs)
    reference.release()
    return OutputCheck(
        reference,
        inputs,
        expected,
        tolerance,
        output_bounds(imported.mod),
        output_steps(imported.mod),
    )


def untouched(imported: ImportedModel, target: Target) -> Reference:
    """Compile the imported module without this package's passes and without schedules."""
    mod = imported.original or imported.mod
    executable = build(lower(mod, target, is_reference=True), MemoryDatabase(), target)
    return Reference("the untouched model", CompiledModel(executable))
