# SPDX-License-Identifier: Apache-2.0
"""Tell rounding from a wrong import if outputs differ, by two runs of the untouched import."""

import logging
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm import relax
from tvm.ir import IRModule, load_json, save_json

from ...frontends.imported import Arrays, Locate, Run
from ...model.bindings import array_of, constant
from ...session.errors import ModelError, first_line
from ...session.stop import StopRequest
from ..model_kernels import ModelKernels
from .output_check import OutputCheck

logger = logging.getLogger(__name__)

_SINGLE, _DOUBLE = "float32", "float64"


class Judgment:
    """Runs the untouched import in float64 and in float32, at most once.

    If the float64 run agrees with the reference, the import is right, and the reference's
    difference from it shows the effect of rounding. Otherwise the float64 and float32 runs are
    compared: their difference is rounding, even if both are wrong. The check treats either
    difference as noise (``OutputCheck.excuse``). This shows more than perturbed inputs do if a
    large number absorbs a small one, if long sums round internally, or if no input is
    floating-point.
    """

    def __init__(self, mod: IRModule, check: OutputCheck, locate: Locate | None = None) -> None:
        self._mod = mod
        self._check = check
        self._locate = locate
        self._was_asked = False

    def ask(self, kernels: ModelKernels, compiled: Run, stop: StopRequest) -> bool:
        """Run the import on the inputs for which the outputs differ, and excuse rounding.

        ``kernels``: any kernels of the model, used for compiling. After the deadline, there is no
        float64 run. If less time is left than the float64 run took, there is no float32 run, and
        the import is not judged. Returns False if the outputs no longer differ: outputs that are
        wrong only sometimes are wrong. Raises ``ModelError`` if the import disagrees with the
        reference.
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
        untouched: Run = kernels.reference(self._mod).compile()
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
                    "model cannot be tuned rightly; where the random inputs of the check are none "
                    "that it takes, pass inputs={name: array} (--inputs FILE.npz)"
                )
        return True

    def _is_right(self, number: int, outputs: Arrays) -> bool:
        return self._check.agrees(lambda _: outputs, [number])

    def _where(self, kernels: ModelKernels, number: int) -> str:
        """Return a phrase that names the first node that differs; empty if it is unknown."""
        if self._locate is None:
            return ""
        # A failure here must not hide the original error.
        try:
            inputs = self._check.inputs[number]
            node = self._locate(inputs, lambda mod: kernels.reference(mod).compile())
        except Exception as error:
            logger.info("the node was not found: %s", first_line(error))
            return ""
        return f", first at {node}" if node else ""

    def _in_float64(self, kernels: ModelKernels, numbers: Sequence[int]) -> dict[int, Arrays]:
        """Return the import's float64 outputs by input set; empty if there is no float64 form."""
        # TVM raises many error types for modules that it cannot infer or compile.
        try:
            run: Run = kernels.reference(in_float64(self._mod)).compile()
            return {
                number: [
                    found.astype(expected.dtype)
                    for found, expected in zip(
                        run([_wide_array(each) for each in self._check.inputs[number]]),
                        self._check.expected[number],
                        strict=True,
                    )
                ]
                for number in numbers
            }
        except Exception as error:
            logger.info("no float64 run: %s", first_line(error))
            return {}


def _beside(expected: Arrays, single: Arrays, wide: Arrays) -> Arrays:
    """Return the expected outputs plus the difference of the float64 and float32 runs."""

    def moved(right: Any, first: Any, second: Any) -> Any:
        with np.errstate(invalid="ignore"):  # Infinity minus infinity.
            difference = second.astype(np.float64) - first.astype(np.float64)
        return np.where(np.isfinite(difference), right + difference, right)

    return [moved(*triple) for triple in zip(expected, single, wide, strict=True)]


def remarks(check: OutputCheck) -> list[str]:
    """Return the limits of a check as notes for the user."""
    texts = [
        f"output {number} is 0, almost 0 or not finite for all inputs of the check, so that "
        "nothing was checked there: pass inputs with which it is not"
        for number in check.unchecked
    ]
    if check.is_noisy:
        texts.append(
            "some outputs are ill-conditioned: a rounding error moves those of "
            f"{check.reference.name} by more than the tolerance, so that they were compared within "
            "what rounding moves"
        )
    return texts


def in_float64(mod: IRModule) -> IRModule:
    """Convert the float32 computations of a module of Relax operators to float64.

    Raises ``ValueError`` if the module has more than operator calls, such as branches or kernels.
    """
    function = mod["main"]
    values: dict[Any, Any] = {
        parameter: relax.Var(parameter.name, _wide_type(parameter.ty))
        for parameter in function.params
    }
    builder = relax.BlockBuilder()
    with builder.function("main", [values[parameter] for parameter in function.params]):
        with builder.dataflow():
            for block in function.body.blocks:
                for binding in block.bindings:
                    if not isinstance(binding, relax.VarBinding):
                        raise ValueError(f"a {type(binding).__name__} has no form in float64")
                    values[binding.var] = builder.emit(_wide(binding.value, values))
            result = builder.emit_output(_wide(function.body.body, values))
        builder.emit_func_output(result)
    made: IRModule = builder.get()
    return made.with_attrs(mod.attrs) if mod.attrs else made


def _wide_array(array: np.ndarray) -> np.ndarray:
    return array.astype(_DOUBLE) if array.dtype == _SINGLE else array


def _wide(expr: Any, values: dict[Any, Any]) -> Any:
    if isinstance(expr, relax.Var):
        return values[expr]
    if isinstance(expr, relax.Tuple):
        return relax.Tuple([_wide(each, values) for each in expr.fields])
    if isinstance(expr, relax.TupleGetItem):
        return relax.TupleGetItem(_wide(expr.tuple_value, values), expr.index)
    array = array_of(expr)
    if array is not None:
        return constant(_wide_array(array)) if array.dtype == _SINGLE else expr
    if isinstance(expr, relax.Call):
        if not hasattr(expr.op, "name") or len(expr.ty_args):
            raise ValueError(f"a call of {expr.op} has no form in float64")
        arguments = [_wide(each, values) for each in expr.args]
        return relax.Call(expr.op, arguments, _wide_attributes(expr.attrs))
    if isinstance(expr, relax.If | relax.SeqExpr | relax.Function):
        raise ValueError(f"a {type(expr).__name__} has no form in float64")
    return expr


def _wide_attributes(attributes: Any) -> Any:
    """Replace float32 with float64 in attributes, such as the type of a cast."""
    if attributes is None:
        return None
    text = save_json(attributes)
    wide = text.replace(f':"{_SINGLE}"', f':"{_DOUBLE}"')
    return attributes if wide == text else load_json(wide)


def _wide_type(kind: Any) -> Any:
    if isinstance(kind, relax.TensorType) and str(kind.dtype) == _SINGLE:
        return relax.TensorType(kind.shape, _DOUBLE)
    return kind
