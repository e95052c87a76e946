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
"""A PyTorch model as a model to tune."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ModelError
from .imported import Arrays, ImportedModel, Reference, check_inputs
from .relax import bind_shapes

if TYPE_CHECKING:
    import torch


def load_exported_program(path: str) -> "torch.export.ExportedProgram":
    """Read a file of ``torch.export.save``.

    Raises
    ------
    ModelError
        If PyTorch is missing, or the file holds no exported program.
    """
    torch = _torch()
    try:
        return torch.export.load(path)
    except Exception as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(f"model {path!r} is no file of torch.export.save: {first}") from error


def import_torch(
    model: Any,
    example_inputs: Any = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    threads: int = 1,
) -> ImportedModel:
    """Import an exported program, or export a module and import that.

    Parameters
    ----------
    model : torch.export.ExportedProgram | torch.nn.Module
        The model. A module must be in inference mode (``eval()``).
    example_inputs : tuple[torch.Tensor, ...] | torch.Tensor | None
        Inputs to export a module with. Their shapes are those that are tuned for.
    shapes : Mapping[str, Sequence[int]] | None
        Extents of inputs that the program leaves open.
    threads : int
        Threads that PyTorch may use while it runs as the reference.

    Returns
    -------
    model : ImportedModel
        The model. PyTorch is the reference.

    Raises
    ------
    ModelError
        If example inputs are missing, the module cannot be exported, or the frontend lacks an
        operator.
    """
    torch = _torch()
    program = _exported(torch, model, example_inputs)
    from tvm.relax.frontend.torch import from_exported_program

    try:
        mod = from_exported_program(program, unwrap_unit_return_tuple=True)
    # The frontend raises AssertionError, NotImplementedError and others for what it lacks.
    except Exception as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(f"TVM's PyTorch frontend cannot import the model: {first}") from error
    mod = bind_shapes(mod, shapes or {})
    module = program.module()

    def run(inputs: Sequence[np.ndarray]) -> Arrays:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            with torch.no_grad():
                outputs = module(*(torch.from_numpy(np.asarray(a, order="C")) for a in inputs))
        finally:
            torch.set_num_threads(before)
        return [leaf.numpy() for leaf in torch.utils._pytree.tree_leaves(outputs)]

    return ImportedModel(mod, check_inputs(mod), Reference("PyTorch", run))


def _exported(torch: Any, model: Any, example_inputs: Any) -> Any:
    if isinstance(model, torch.export.ExportedProgram):
        return model
    if not isinstance(model, torch.nn.Module):
        raise ModelError(
            f"model is a {type(model).__qualname__}: expected a torch.export.ExportedProgram or "
            "(torch.nn.Module, example inputs)"
        )
    if example_inputs is None:
        raise ModelError(
            "a torch.nn.Module needs example inputs: pass (module, (input, ...)), or a "
            "torch.export.ExportedProgram"
        )
    if model.training:
        raise ModelError("the torch.nn.Module is in training mode: call model.eval() before")
    if isinstance(example_inputs, torch.Tensor):
        example_inputs = (example_inputs,)
    try:
        with torch.no_grad():
            return torch.export.export(model, tuple(example_inputs))
    except Exception as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(f"torch.export cannot export the model: {first}") from error


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise ModelError("a PyTorch model needs the package torch: pip install torch") from error
    return torch
