# SPDX-License-Identifier: Apache-2.0
"""A judge of a model and its import, where outputs differ: two runs without our work."""

import logging
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tvm.ir import IRModule

from ...session.errors import ModelError
from ...session.stop import StopRequest
from ..compile.lowering import lower
from ..frontends.imported import Arrays, Locate, Run
from ..model_kernels import ModelKernels
from .double_precision import in_float64, with_wide_inputs
from .output_check import OutputCheck

logger = logging.getLogger(__name__)


class Judgement:
    """Runs the untouched import, in float64 and in float32, once it is asked.

    Where the float64 run agrees with the reference, the import is right, and what the reference is
    off by says how much rounding moves. Otherwise the two runs are compared: what they differ by is
    rounding, whoever is right. The check takes either for noise (``OutputCheck.excuse``). That says
    more than moved inputs do where a large number absorbs a small one, where long sums round
    inside, or where no input is of floating-point numbers. ``mod``: the module as it was imported.
    ``check``: what the outputs are compared with. ``locate``: finds what the import computes
    otherwise than the reference.
    """

    def __init__(self, mod: IRModule, check: OutputCheck, locate: Locate | None = None) -> None:
        self._mod = mod
        self._check = check
        self._locate = locate
        self._was_asked = False

    def ask(self, kernels: ModelKernels, compiled: Run, stop: StopRequest) -> bool:
        """Run both on the inputs for which the outputs differ, and excuse rounding.

        ``kernels``: any kernels of the model: they know how to compile. ``stop``: when the run
        ends. There is no float64 run after it. Where less time is left than that took, there is no
        float32 run, and nothing is said of the import. False where the outputs no longer differ:
        what is wrong now and then is wrong. Raises ``ModelError`` if the import computes something
        else than the reference.
        """
        if self._was_asked:
            return True
        self._was_asked = True
        check = self._check
        numbers = [n for n in range(len(check.inputs)) if not check.agrees(compiled, [n])]
        if not numbers:
            return False
        start = time.monotonic()
        truths = {} if stop.is_due else self._in_float64(kernels, numbers)
        if all(number in truths and self._is_right(number, truths[number]) for number in numbers):
            for number in numbers:
                check.excuse(number, [truths[number]])
            if check.agrees(compiled, numbers):
                return True
        if truths and stop.left < time.monotonic() - start:
            return True
        plain = partial(lower, is_reference=True)
        untouched: Run = kernels.variant(self._mod, plain).compile()
        single = {number: untouched(check.inputs[number]) for number in numbers}
        for number, truth in truths.items():
            check.excuse(number, [_beside(check.expected[number], single[number], truth)])
        for number, outputs in single.items():
            if not self._is_right(number, outputs):
                off = check.deviation(lambda _, found=outputs: found, [number])  # type: ignore[misc]
                raise ModelError(
                    f"TVM's import of the model computes something else than "
                    f"{check.reference.name}{self._where(kernels, number)}: the outputs differ by "
                    f"{off:.1e} of the scale of their row before anything is tuned, so that the "
                    "model cannot be tuned rightly"
                )
        return True

    def _is_right(self, number: int, outputs: Arrays) -> bool:
        return self._check.agrees(lambda _: outputs, [number])

    def _where(self, kernels: ModelKernels, number: int) -> str:
        """At which node the import differs, in words; empty where that is not known."""
        if self._locate is None:
            return ""
        # What fails here must not hide what is to be said.
        try:
            node = self._locate(
                self._check.inputs[number],
                lambda mod: kernels.variant(mod, partial(lower, is_reference=True)).compile(),
            )
        except Exception as error:
            logger.info("the node was not found: %s", (str(error).splitlines() or [""])[0])
            return ""
        return f", first at {node}" if node else ""

    def _in_float64(self, kernels: ModelKernels, numbers: Sequence[int]) -> dict[int, Arrays]:
        """The import's outputs in float64, by the set; empty where they cannot be computed so."""
        # TVM raises errors of many types for what it cannot infer or compile.
        try:
            wide = kernels.variant(in_float64(self._mod), partial(lower, is_reference=True))
            run = with_wide_inputs(wide.compile())
            return {
                number: [
                    found.astype(expected.dtype)
                    for found, expected in zip(
                        run(self._check.inputs[number]), self._check.expected[number], strict=True
                    )
                ]
                for number in numbers
            }
        except Exception as error:
            logger.info("no float64 run: %s", (str(error).splitlines() or [""])[0])
            return {}


def _beside(expected: Arrays, single: Arrays, wide: Arrays) -> Arrays:
    """The expected outputs with the rounding of the float32 run.

    Only the difference of the two runs counts: the import may compute another function.
    """

    def moved(right: Any, first: Any, second: Any) -> Any:
        with np.errstate(invalid="ignore"):  # Infinity less infinity.
            difference = second.astype(np.float64) - first.astype(np.float64)
        return np.where(np.isfinite(difference), right + difference, right)

    return [moved(*triple) for triple in zip(expected, single, wide, strict=True)]


def remarks(check: OutputCheck) -> list[str]:
    """The limits of a check, in words for the user."""
    texts = [
        f"output {number} is (almost) 0 for all inputs of the check, so that nothing was checked "
        "there: pass inputs with which it is not"
        for number in check.unchecked
    ]
    if check.is_noisy:
        texts.append(
            "some outputs are ill-conditioned: a rounding error moves those of "
            f"{check.reference.name} by more than the tolerance, so that they were compared within "
            "what rounding moves"
        )
    return texts
