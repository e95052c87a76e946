# SPDX-License-Identifier: Apache-2.0
"""Models of the zoo, quantized by ``onnxruntime.quantization`` (static, QDQ, per tensor)."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .model_zoo import ONNX_MODELS, light_onnx, load_model, torch_model

KINDS = ("u8s8", "s8s8", "u8s7")
"""The types of activations and weights. ``reduce_range`` makes 7-bit weights."""

BASES = ("resnet50", "mobilenet_v2", "squeezenet", "bert_4_layers")

QUANTIZED_MODELS = tuple(f"{base}_{kind}" for base in BASES for kind in KINDS)

CALIBRATION_INPUTS = 4
"""Number of random inputs for calibrating the scales of activations."""


def write_onnx(name: str, path: Path) -> None:
    """Write a model of the zoo as an ONNX file; a PyTorch model is exported."""
    import onnx

    if name in QUANTIZED_MODELS:
        onnx.save(quantized_onnx(name), path)
    elif name in ONNX_MODELS:
        onnx.save(light_onnx(name), path)
    else:
        import torch

        module, inputs = torch_model(name)
        torch.onnx.export(module, inputs, dynamo=True, verbose=False).save(path)


def load_any_model(name: str) -> Any:
    """Make a model of the zoo, quantized or not, in a form that ``tune`` accepts."""
    return quantized_onnx(name) if name in QUANTIZED_MODELS else load_model(name)


def quantized_onnx(name: str) -> Any:
    """One of ``QUANTIZED_MODELS`` as an ``onnx.ModelProto``."""
    import onnx
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    base, _, kind = name.rpartition("_")
    activations = QuantType.QInt8 if kind == "s8s8" else QuantType.QUInt8
    with tempfile.TemporaryDirectory(prefix="droplet_quantized_") as folder:
        model, prepared, quantized = (Path(folder) / f"{part}.onnx" for part in "abc")
        write_onnx(base, model)
        quant_pre_process(str(model), str(prepared), skip_symbolic_shape=True)
        quantize_static(
            str(prepared),
            str(quantized),
            _inputs(onnx.load(prepared)),
            quant_format=QuantFormat.QDQ,
            activation_type=activations,
            weight_type=QuantType.QInt8,
            reduce_range=kind == "u8s7",
        )
        return onnx.load(quantized)


def _inputs(model: Any) -> Any:
    """A calibration reader for ``quantize_static`` with standard normal inputs."""
    from onnxruntime.quantization import CalibrationDataReader

    weights = {one.name for one in model.graph.initializer}
    shapes = {
        one.name: [dim.dim_value for dim in one.type.tensor_type.shape.dim]
        for one in model.graph.input
        if one.name not in weights
    }

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._rest = _random(shapes)

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self._rest, None)

    return Reader()


def _random(shapes: dict[str, list[int]]) -> Iterator[dict[str, np.ndarray]]:
    generator = np.random.default_rng(0)
    for _ in range(CALIBRATION_INPUTS):
        yield {
            name: generator.standard_normal(shape).astype("float32")
            for name, shape in shapes.items()
        }
