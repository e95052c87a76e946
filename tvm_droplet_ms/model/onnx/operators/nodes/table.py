# SPDX-License-Identifier: Apache-2.0
"""The converters of this package by operator."""

import functools
from typing import Any

from . import (
    deformable,
    detection,
    elementwise,
    normalization,
    pooling,
    quantized,
    resize,
    scatter,
    sequences,
    shapes,
    signal,
)
from .recurrence.converters import Gru, Lstm, Rnn


@functools.cache
def converters() -> dict[str, Any]:
    """The converters, which go before TVM's."""
    return {
        "BatchNormalization": normalization.BatchNormalization,
        "BitShift": elementwise.BitShift,
        "BitCast": shapes.BitCast,
        "Col2Im": shapes.Col2Im,
        "ConvInteger": quantized.ConvInteger,
        "ConvTranspose": pooling.ConvTranspose,
        "DFT": signal.Dft,
        "DeformConv": deformable.DeformConv,
        "DequantizeLinear": quantized.DequantizeLinear,
        "Dropout": elementwise.Dropout,
        "DynamicQuantizeLinear": quantized.DynamicQuantizeLinear,
        "Expand": shapes.Expand,
        "EyeLike": shapes.EyeLike,
        "GRU": Gru,
        "GroupNormalization": normalization.GroupNormalization,
        "IsInf": elementwise.IsInf,
        "LSTM": Lstm,
        "LpNormalization": normalization.LpNormalization,
        "MatMulInteger": quantized.MatMulInteger,
        "MaxUnpool": scatter.MaxUnpool,
        "MaxPool": pooling.MaxPool,
        "Mod": elementwise.Mod,
        "NonMaxSuppression": detection.NonMaxSuppression,
        "Pow": elementwise.Pow,
        "QLinearConv": quantized.QLinearConv,
        "QLinearMatMul": quantized.QLinearMatMul,
        "QuantizeLinear": quantized.QuantizeLinear,
        "RNN": Rnn,
        "ReduceMax": normalization.ReduceMax,
        "ReduceMean": normalization.ReduceMean,
        "ReduceMin": normalization.ReduceMin,
        "Resize": resize.Resize,
        "ReverseSequence": shapes.ReverseSequence,
        "RoiAlign": detection.RoiAlign,
        "STFT": signal.Stft,
        "Scatter": scatter.ScatterElements,
        "ScatterElements": scatter.ScatterElements,
        "SequenceInsert": sequences.SequenceInsert,
        "Slice": shapes.Slice,
        "SpaceToDepth": shapes.SpaceToDepth,
        "Split": shapes.Split,
        "SplitToSequence": sequences.SplitToSequence,
        "TensorScatter": shapes.TensorScatter,
        "TopK": shapes.TopK,
        "Upsample": resize.Upsample,
    }
