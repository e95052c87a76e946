# SPDX-License-Identifier: Apache-2.0
"""Converters for linear models, by ONNX Runtime's rules."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from ...operands import UnsupportedNode, shape_of
from .scores import Labels, pair, transform_of, transformed


class LinearRegressor(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts ``LinearRegressor``."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        targets = int(attr.get("targets", 1))
        intercepts = attr.get("intercepts", ())
        kept = intercepts if len(intercepts) == targets else [0.0] * targets
        scores = _scores(bb, inputs[0], attr, kept)
        transform = transform_of(attr)
        if targets == 1 and transform != "PROBIT":
            return scores
        return transformed(bb, scores, transform)


class LinearClassifier(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts ``LinearClassifier``."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        labels = Labels(attr, "classlabels_ints")
        scores = _scores(bb, inputs[0], attr, attr.get("intercepts", ()))
        classes, transform = shape_of(scores)[1], transform_of(attr)
        if classes > 1:
            if len(labels) < classes:
                raise UnsupportedNode(f"it has {len(labels)} labels for {classes} classes")
            label = labels.of_largest(bb, scores)
            return relax.Tuple([label, transformed(bb, scores, transform)])
        if len(labels) != 2:
            raise UnsupportedNode(f"it has {len(labels)} labels for one score: expected 2")
        is_second = bb.emit(relax.op.greater(scores, relax.const(0.0, "float32")))
        label = labels.of_condition(bb, is_second, *labels.values)
        return relax.Tuple([label, pair(bb, scores, "rest", transform)])


def _scores(bb: Any, data: Any, attributes: dict[str, Any], intercepts: Sequence[float]) -> Any:
    """The product with the coefficients, (rows, classes), in float32."""
    shape, classes = shape_of(data), len(intercepts)
    coefficients = np.array(attributes.get("coefficients", ()), np.float32)
    used = classes * shape[-1] if shape else 0
    if not 1 <= len(shape) <= 2 or coefficients.size < used or not classes:
        raise UnsupportedNode(
            f"it has {coefficients.size} coefficients and {classes} intercepts for an input of the "
            f"shape {tuple(shape)}"
        )
    data = bb.emit(relax.op.astype(data, "float32"))
    rows = data if len(shape) == 2 else bb.emit(relax.op.reshape(data, [1, *shape]))
    # ONNX Runtime ignores further coefficients, and its own example has twice as many.
    weight = np.ascontiguousarray(coefficients[:used].reshape(classes, -1).T)
    product = bb.emit(relax.op.matmul(rows, relax.const(weight, "float32")))
    shift = np.array(intercepts, np.float32)
    return bb.emit(relax.op.add(product, relax.const(shift, "float32")))
