# SPDX-License-Identifier: Apache-2.0
"""A comparison of two sets of outputs but for rounding, with a run in float64 as the judge.

Independent of the package's own check, which is among what is tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

Arrays = list[np.ndarray[Any, Any]]

CLOSE = 2e-5
"""The difference that may be at once, relative to the largest element of the row along any axis:
some dozens of roundings of float32."""

WORSE = 32.0
"""The most that outputs may be off the float64 run, in times of ONNX Runtime's, plus ``FINE``."""

FINE = 1e-5

DOUBTFUL = 1e-3
"""The difference that may be where nothing can judge it."""


HALF = 1e-2
"""The difference that may be at once where a graph computes in float16, which is not done here."""


def differences(outputs: Arrays, expected: Arrays) -> list[float]:
    """The largest difference of each output, relative to the scale of its rows."""
    return [_difference(found, wanted) for found, wanted in zip(outputs, expected, strict=True)]


def _difference(found: Any, wanted: Any) -> float:
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return float("inf")
    if not wanted.size:
        return 0.0
    found, wanted = found.astype("float64"), wanted.astype("float64")
    same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    with np.errstate(all="ignore"):
        ratio = np.abs(found - wanted) / np.maximum(_scale(wanted), 1e-30)
    ratio = np.where(same, 0.0, np.where(np.isnan(ratio), np.inf, ratio))
    return float(ratio.max())


def _scale(wanted: Any) -> Any:
    """For each element the least of the largest magnitudes along its rows."""
    sizes = np.where(np.isfinite(wanted), np.abs(wanted), 0.0)
    rows = [sizes.max(axis=axis, keepdims=True) for axis, n in enumerate(sizes.shape) if n > 3]
    if not rows:
        return np.full(sizes.shape, sizes.max())
    least = rows[0]
    for row in rows[1:]:
        least = np.minimum(least, row)
    return np.broadcast_to(np.maximum(least, 1e-6 * sizes.max()), sizes.shape)


def is_right(outputs: Arrays, expected: Arrays, model: Any, inputs: Sequence[Any]) -> bool:
    """The verdict on outputs.

    ``outputs``, ``expected``: those of the model under test, and those of ONNX Runtime. ``model``:
    the model, to be run in float64 where they are not close. True where they are close, or about as
    far from the float64 run as ONNX Runtime's.
    """
    if len(outputs) != len(expected):
        return False
    close = differences(outputs, expected)
    has_halves = any(map(_is_to_half, model.graph.node))
    if max(close, default=0.0) <= (HALF if has_halves else CLOSE):
        return True
    try:
        exact = in_float64(model, inputs)
    # ONNX's own reference fails for some transposed convolutions, with errors of many types.
    except Exception:
        return max(close) <= DOUBTFUL
    if any(found.dtype != wanted.dtype for found, wanted in zip(outputs, expected, strict=True)):
        return False
    wide = [[each.astype("float64") for each in arrays] for arrays in (outputs, expected)]
    ours, theirs = (differences(arrays, exact) for arrays in wide)
    return all(a <= max(CLOSE, WORSE * b + FINE) for a, b in zip(ours, theirs, strict=True))


def _is_to_half(node: onnx.NodeProto) -> bool:
    return any(each.name == "to" and each.i == TensorProto.FLOAT16 for each in node.attribute)


def in_float64(model: onnx.ModelProto, inputs: Sequence[Any]) -> Arrays:
    """The outputs of a float32 model when all of it is computed in float64, by ``onnx``."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    for tensor in wide.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            array = numpy_helper.to_array(tensor)
            # Scales of a resize are float32 by ONNX's definition.
            if not any(tensor.name in n.input for n in wide.graph.node if n.op_type == "Resize"):
                tensor.CopyFrom(numpy_helper.from_array(array.astype("float64"), tensor.name))
    for value in (*wide.graph.input, *wide.graph.output):
        value.type.tensor_type.elem_type = TensorProto.DOUBLE
    del wide.graph.value_info[:]
    names = [value.name for value in wide.graph.input]
    arrays = [array.astype("float64") for array in inputs]
    found = ReferenceEvaluator(wide).run(None, dict(zip(names, arrays, strict=True)))
    return [np.asarray(each) for each in found]
