# SPDX-License-Identifier: Apache-2.0
"""Converters for ONNX Runtime's normalizations of a sum, and its RMS normalizations."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from ...operands import UnsupportedNode, dtype_of, shape_of


class SkipLayerNormalization(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts ``SkipLayerNormalization``: the layer normalization of a sum."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        total = _sum(bb, inputs[0], inputs[1], inputs[4])
        scale, shift = inputs[2], inputs[3]
        if shift is None:
            dtype = dtype_of(scale)
            shift = relax.const(np.zeros(shape_of(scale), dtype), dtype)
        epsilon = float(attr.get("epsilon", 1e-12))
        normalized = bb.emit(relax.op.nn.layer_norm(total, scale, shift, [-1], epsilon))
        return _with_sum(normalized, total, attr)


class SkipSimplifiedLayerNormalization(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts ``SkipSimplifiedLayerNormalization``: the RMS normalization of a sum."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        total = _sum(bb, inputs[0], inputs[1], inputs[3])
        epsilon = float(attr.get("epsilon", 1e-12))
        normalized = bb.emit(relax.op.nn.rms_norm(total, inputs[2], [-1], epsilon))
        return _with_sum(normalized, total, attr)


class SimplifiedLayerNormalization(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts ``SimplifiedLayerNormalization``, ONNX's ``RMSNormalization`` before version 23."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        data, rank = inputs[0], len(shape_of(inputs[0]))
        axes = list(range(int(attr.get("axis", -1)) % rank, rank))
        epsilon = float(attr.get("epsilon", 1e-5))
        if axes[0] == 0:
            # TVM's kernel requires an axis before the normalized axes.
            row, scale = (
                bb.emit(relax.op.reshape(each, shape))
                for each, shape in ((data, [1, -1]), (inputs[1], [-1]))
            )
            row = bb.emit(relax.op.nn.rms_norm(row, scale, [1], epsilon))
            normalized = bb.emit(relax.op.reshape(row, shape_of(data)))
        else:
            normalized = bb.emit(relax.op.nn.rms_norm(data, inputs[1], axes, epsilon))
        if attr["tvm_custom"]["num_outputs"] == 1:
            return normalized
        squares = bb.emit(relax.op.mean(relax.op.multiply(data, data), axes, keepdims=True))
        shifted = relax.op.add(squares, relax.const(epsilon, dtype_of(data)))
        return relax.Tuple([normalized, bb.emit(relax.op.rsqrt(shifted))])


def _sum(bb: Any, data: Any, skip: Any, bias: Any) -> Any:
    """The sum to normalize. ``skip`` may have a batch of one, or no batch axis."""
    total = relax.op.add(data, skip)
    return bb.emit(total if bias is None else relax.op.add(total, bias))


def _with_sum(normalized: Any, total: Any, attr: dict[str, Any]) -> Any:
    """The outputs. The second and third are only for training."""
    names = attr["tvm_custom"]["outputs"]
    count = len(names)
    if any(names[1:3]):
        raise UnsupportedNode("its outputs for training (mean, inv_std_var) are not supported")
    return normalized if count == 1 else relax.Tuple([normalized, total, total, total])
