# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""An ONNX model as a model to tune."""

import contextlib
import io
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from tvm.ir import IRModule

from ...model.onnx.nodes import prepare_onnx
from ...model.onnx.operators import UnsupportedNode, register_operators
from ..errors import ModelError
from .imported import Arrays, ImportedModel, Reference, check_inputs

if TYPE_CHECKING:
    import onnx


def load_onnx(path: str) -> "onnx.ModelProto":
    """Read an ONNX file.

    Raises
    ------
    ModelError
        If the package ``onnx`` is missing, or the file holds no ONNX model.
    """
    onnx = _onnx()
    try:
        model = onnx.load(path)
    except Exception as error:
        raise ModelError(f"model {path!r} is no ONNX file: {_first_line(error)}") from error
    if not model.graph.node:
        raise ModelError(f"model {path!r} is no ONNX file: it has no operators")
    return model


def import_onnx(
    model: "onnx.ModelProto", shapes: Mapping[str, Sequence[int]] | None = None, threads: int = 1
) -> ImportedModel:
    """Import an ONNX model with TVM's frontend.

    Parameters
    ----------
    model : onnx.ModelProto
        The model, its weights included.
    shapes : Mapping[str, Sequence[int]] | None
        Shapes of the inputs by name, for those whose extents the model leaves open.
    threads : int
        Threads that ONNX Runtime may use.

    Returns
    -------
    model : ImportedModel
        The model. ONNX Runtime is the reference where it is installed.

    Raises
    ------
    ModelError
        If a shape is missing, or the frontend lacks an operator.
    """
    bound = _input_shapes(model, shapes or {})
    # ONNX Runtime reads and optimizes a large model for seconds.
    with ThreadPoolExecutor(1) as thread:
        started = thread.submit(_onnx_runtime, model, list(bound), threads)
        mod = _from_onnx(prepare_onnx(model, bound), bound)
        reference = started.result()
    original = None if reference else _from_onnx(model, bound)
    return ImportedModel(mod, check_inputs(mod), reference, original)


def _from_onnx(model: "onnx.ModelProto", shapes: dict[str, list[int]]) -> IRModule:
    from tvm.relax.frontend.onnx import from_onnx

    register_operators()
    try:
        # TVM prints the inputs of a node that it cannot convert.
        with contextlib.redirect_stdout(io.StringIO()):
            return from_onnx(model, shape_dict=shapes)
    except UnsupportedNode as error:
        raise ModelError(f"{error}; export the model without it") from error


def _input_shapes(
    model: "onnx.ModelProto", shapes: Mapping[str, Sequence[int]]
) -> dict[str, list[int]]:
    """The shapes of all inputs: those given, and those that the model states."""
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = {value.name: value for value in model.graph.input if value.name not in weights}
    if unknown := sorted(set(shapes) - set(inputs)):
        raise ModelError(
            f"shapes names the input {unknown[0]!r}: the model has {', '.join(inputs)}"
        )
    return {
        name: _shape_of(name, value.type.tensor_type.shape.dim, shapes.get(name))
        for name, value in inputs.items()
    }


def _shape_of(name: str, dims: Any, given: Sequence[int] | None) -> list[int]:
    stated = [dim.dim_value if dim.dim_value > 0 else None for dim in dims]
    if given is None:
        if None in stated:
            shown = ", ".join(
                str(d.dim_value) if d.dim_value > 0 else d.dim_param or "?" for d in dims
            )
            example = ",".join("1" if extent is None else str(extent) for extent in stated)
            raise ModelError(
                f"input {name!r} has the open shape ({shown}): pass the extents to tune for, such "
                f"as shapes={{{name!r}: ({example})}} or --shape {name}={example}"
            )
        return [extent for extent in stated if extent is not None]
    fits = len(given) == len(stated) and all(
        extent in (None, value) for extent, value in zip(stated, given, strict=True)
    )
    if stated and not fits:
        raise ModelError(
            f"shapes gives {name!r} the shape {tuple(given)}: the model has {tuple(stated)}, where "
            "None is open"
        )
    return [int(extent) for extent in given]


def _onnx_runtime(model: "onnx.ModelProto", names: list[str], threads: int) -> Reference | None:
    try:
        import onnxruntime
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )

    def run(inputs: Sequence[np.ndarray]) -> Arrays:
        outputs: Arrays = session.run(None, dict(zip(names, inputs, strict=True)))
        return outputs

    return Reference("ONNX Runtime", run)


def _onnx() -> Any:
    try:
        import onnx
    except ImportError as error:
        raise ModelError("an ONNX model needs the package onnx: pip install onnx") from error
    return onnx


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0][:300]
