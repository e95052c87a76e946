# SPDX-License-Identifier: Apache-2.0
"""Common programs that run models on CPUs, each in its fastest configuration.

Each program is a function of a model's files, its inputs and a number of threads. It returns a
function that runs the model once and returns its outputs as NumPy arrays. Inputs are converted
beforehand.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from ..zoo.model_zoo import ONNX_MODELS, light_onnx, torch_model
from ..zoo.quantized_models import QUANTIZED_MODELS, write_onnx

Arrays = list[np.ndarray]
Run = Callable[[], Arrays]


class ModelFiles:
    """A model of the zoo in the formats that the programs accept.

    - ``name``: the name of a model, such as one of ``model_zoo.MODELS``.
    - ``folder``: an existing directory for its files.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder

    @cached_property
    def onnx(self) -> Path:
        """The path of the model's ONNX file. A PyTorch model is exported."""
        path = self._folder / f"{self.name}.onnx"
        write_onnx(self.name, path)
        return path

    @cached_property
    def module(self) -> Any:
        """The PyTorch module in inference mode. ``onnx2torch`` converts an ONNX model.

        Raises ``ValueError`` for a quantized model, which exists only as an ONNX file.
        """
        if self.name in QUANTIZED_MODELS:
            raise ValueError("a quantized model, which is an ONNX file")
        if self.name not in ONNX_MODELS:
            return torch_model(self.name)[0]
        from onnx import shape_inference, version_converter
        from onnx2torch import convert

        model = version_converter.convert_version(light_onnx(self.name), 13)
        return convert(shape_inference.infer_shapes(model)).eval()


def _onnxruntime(model: ModelFiles, inputs: Arrays, threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        str(model.onnx), options, providers=["CPUExecutionProvider"]
    )
    feeds = dict(zip((one.name for one in session.get_inputs()), inputs, strict=True))
    return lambda: session.run(None, feeds)


def _openvino(model: ModelFiles, inputs: Arrays, threads: int, precision: str = "f32") -> Run:
    import openvino

    options = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": threads,
        # By default, OpenVINO computes in bfloat16 if the CPU can.
        "INFERENCE_PRECISION_HINT": precision,
    }
    compiled = openvino.Core().compile_model(str(model.onnx), "CPU", options)
    request = compiled.create_infer_request()
    feeds = dict(enumerate(inputs))

    def run() -> Arrays:
        request.infer(feeds, share_inputs=True, share_outputs=True)
        return [request.get_output_tensor(i).data for i in range(len(compiled.outputs))]

    return run


def _torch(model: ModelFiles, inputs: Arrays, threads: int, **options: Any) -> Run:
    """PyTorch in channels-last order; with options, compiled with frozen weights."""
    import torch
    from torch._inductor import config

    torch.set_num_threads(threads)
    module = model.module.to(memory_format=torch.channels_last)
    tensors = [
        one.contiguous(memory_format=torch.channels_last) if one.dim() == 4 else one
        for one in map(torch.from_numpy, inputs)
    ]
    if options:
        config.freezing = True
        module = torch.compile(module, **options)

    def run() -> Arrays:
        with torch.no_grad():
            outputs = module(*tensors)
        return [one.numpy() for one in (outputs if isinstance(outputs, tuple) else (outputs,))]

    return run


def _frozen(model: ModelFiles, inputs: Arrays, threads: int) -> Run:
    return _torch(model, inputs, threads, mode="default")


def _autotuned(model: ModelFiles, inputs: Arrays, threads: int) -> Run:
    return _torch(model, inputs, threads, mode="max-autotune-no-cudagraphs")


def _executorch(model: ModelFiles, inputs: Arrays, threads: int) -> Run:
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.extension.pybindings import portable_lib

    portable_lib._unsafe_reset_threadpool(threads)
    tensors = tuple(map(torch.from_numpy, inputs))
    exported = torch.export.export(model.module, tensors)
    program = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    buffer = program.to_executorch().buffer
    loaded = portable_lib._load_for_executorch_from_buffer(buffer)

    def run(_kept: bytes = buffer) -> Arrays:
        """Run the program. The default argument keeps the bytes alive that the program reads."""
        return [one.numpy() for one in loaded.forward(tensors)]

    return run


def _mnn(model: ModelFiles, inputs: Arrays, threads: int) -> Run:
    import MNN
    import onnx

    path = model.onnx.with_suffix(".mnn")
    command = ["-f", "ONNX", "--modelFile", str(model.onnx), "--MNNModel", str(path)]
    tools = Path(sys.executable).parent
    # Otherwise mnnconvert makes pip install an older protobuf, which breaks the import of onnx.
    own = {**os.environ, "PIP_NO_INDEX": "1"}
    subprocess.run([tools / "mnnconvert", *command], check=True, capture_output=True, env=own)
    graph = onnx.load(model.onnx, load_external_data=False).graph
    weights = {one.name for one in graph.initializer}
    names = [one.name for one in graph.input if one.name not in weights]
    options = {"backend": "CPU", "numThread": threads, "precision": "high"}
    runtime = MNN.nn.create_runtime_manager((options,))
    module = MNN.nn.load_module_from_file(
        str(path), names, [one.name for one in graph.output], runtime_manager=runtime
    )
    order = MNN.expr.NCHW
    given = [MNN.expr.const(one, list(one.shape), order) for one in inputs]
    return lambda: [MNN.expr.convert(one, order).read() for one in module.forward(given)]


BASELINES: Mapping[str, Callable[[ModelFiles, Arrays, int], Run]] = {
    "ONNX Runtime": _onnxruntime,
    "OpenVINO": _openvino,
    "PyTorch": _torch,
    "torch.compile": _frozen,
    "torch.compile, max-autotune": _autotuned,
    "ExecuTorch, XNNPACK": _executorch,
    "MNN": _mnn,
}
"""All programs by name. MNN uses Winograd convolutions, the others direct ones."""

OF_HALVES: Mapping[str, Callable[[ModelFiles, Arrays, int], Run]] = {
    "OpenVINO, bfloat16": partial(_openvino, precision="bf16")
}
"""Programs that compute in bfloat16, for comparison with models in bfloat16. OpenVINO uses the full
instruction set of the CPU; the environment variable ``ONEDNN_MAX_CPU_ISA=AVX512_CORE_VNNI`` limits
it."""
