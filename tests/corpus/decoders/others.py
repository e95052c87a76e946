# SPDX-License-Identifier: Apache-2.0
"""Other programs that run an exported program of PyTorch: each as a function that runs it once."""

import contextlib
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Runs = dict[str, Callable[[], Any]]


def write_onnx(program: Any, arrays: Sequence[np.ndarray], path: Path) -> None:
    """Write a program as an ONNX file whose buffers are inputs and outputs, as `tune` has them."""
    import torch

    from tvm_droplet_ms.frontends.torch.changed_state import merge_aliases, return_changes
    from tvm_droplet_ms.frontends.torch.rules import decompose

    merge_aliases(torch, program)
    stateless, _, _ = return_changes(torch, decompose(torch, program))
    names = [
        spec.arg.name
        for spec in stateless.graph_signature.input_specs
        if spec.kind.name == "USER_INPUT"
    ]
    given = {n: torch.from_numpy(np.array(a)) for n, a in zip(names, arrays, strict=True)}
    with contextlib.redirect_stdout(io.StringIO()):
        torch.onnx.export(stateless, (), kwargs=given, dynamo=True, optimize=True).save(str(path))


def of_pytorch(module: Any, given: dict[str, Any]) -> Runs:
    """PyTorch by itself, and compiled."""
    import torch

    compiled = torch.compile(module)
    return {
        "PyTorch": torch.no_grad()(lambda: module(**given)),
        "torch.compile": torch.no_grad()(lambda: compiled(**given)),
    }


def of_onnx(path: Path, arrays: Sequence[np.ndarray], precision: str) -> Runs:
    """ONNX Runtime with inputs and outputs that stay where they are, and OpenVINO."""
    import onnxruntime
    import openvino

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for each, array in zip(session.get_inputs(), arrays, strict=True):
        value = onnxruntime.OrtValue.ortvalue_from_numpy(array)
        binding.bind_ortvalue_input(each.name, value)
    for each in session.get_outputs():
        binding.bind_output(each.name, "cpu")
    settings = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": precision}
    model = openvino.Core().compile_model(str(path), "CPU", settings)
    request = model.create_infer_request()
    for port, array in zip(model.inputs, arrays, strict=True):
        request.set_tensor(port, openvino.Tensor(array, shared_memory=True))
    return {
        "ONNX Runtime": lambda: session.run_with_iobinding(binding),
        "OpenVINO": request.infer,
    }
