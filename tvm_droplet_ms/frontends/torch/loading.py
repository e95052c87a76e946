# SPDX-License-Identifier: Apache-2.0
"""Load PyTorch and its files, and export its modules."""

import contextlib
import logging
import os
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...session.errors import ModelError, first_line
from ..extents import Shapes
from ..imported import check_memory
from .open_extents import resized_examples

if TYPE_CHECKING:
    import torch

CACHE_NOTE = (
    "the module returns a cache of keys and values (transformers), which is left out of the "
    "outputs: it was exported with config.use_cache = False"
)


def load_exported_program(path: str) -> "torch.export.ExportedProgram":
    """Read a file of ``torch.export.save``.

    Raises ``ModelError`` if the file is not one, or by its size does not fit in memory.
    """
    torch = import_pytorch()
    # Nearly all of a file is weights, which PyTorch does not compress.
    size = os.path.getsize(path)
    check_memory(size, unread=size)
    # For a file that it cannot read, PyTorch logs a traceback and then raises an error.
    logger = logging.getLogger("torch.export")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # PyTorch's own code causes these.
            return torch.export.load(path)
    except Exception as error:
        raise ModelError(
            f"model {path!r} is no file of torch.export.save: {first_line(error)}"
        ) from error
    finally:
        logger.setLevel(level)


def import_pytorch() -> Any:
    """Import and return the package ``torch``. Raises ``ModelError`` if it is missing."""
    try:
        import torch
    except ImportError as error:
        raise ModelError("a PyTorch model needs the package torch: pip install torch") from error
    return torch


def line_of(node: Any) -> str:
    """Return the source line that a node comes from, for a message; "" if PyTorch generated it."""
    lines = (node.meta.get("stack_trace") or "").strip().splitlines()
    lines = [line for line in lines if line.strip(" ^~")]
    is_generated = len(lines) > 1 and 'File "<eval_with_key>' in lines[-2]
    return f" ({lines[-1].strip()})" if lines and not is_generated else ""


def unlifted(program: Any) -> Any:
    """Return the module of an exported program, without the checks of its inputs' extents."""
    try:
        return program.module(check_guards=False)
    except TypeError:
        # PyTorch before 2.9 has no such checks.
        return program.module()


def export_module(
    torch: Any, module: Any, example_inputs: Any, shapes: Shapes
) -> tuple[Any, list[str]]:
    """Export a module with its inputs: one, several by position, or several by keyword.

    ``shapes``: the input shapes to export for, if they differ from the example inputs. Returns the
    program and notes for the user. Raises ``ModelError`` if inputs are missing, the module is in
    training mode, or PyTorch cannot export it.
    """
    if not isinstance(module, torch.nn.Module):
        raise ModelError(
            f"model is a {type(module).__qualname__}: expected a torch.export.ExportedProgram or "
            "(torch.nn.Module, example inputs)"
        )
    if example_inputs is None:
        raise ModelError(
            "a torch.nn.Module needs example inputs: pass (module, (input, ...)), or a "
            "torch.export.ExportedProgram"
        )
    if module.training:
        raise ModelError("the torch.nn.Module is in training mode: call model.eval() before")
    arguments, keywords = _arguments(torch, example_inputs)
    notes = []
    with contextlib.ExitStack() as stack:
        if _without_caches(module, stack):
            notes.append(CACHE_NOTE)
        try:
            with torch.no_grad():
                program = torch.export.export(module, arguments, keywords, strict=False)
                resized = resized_examples(torch, program, (arguments, keywords), shapes)
                if resized is not None:
                    program = torch.export.export(module, *resized, strict=False)
        except Exception as error:
            raise ModelError(
                f"torch.export cannot export the model: {first_line(error)}"
            ) from error
    return program, notes


def _arguments(torch: Any, inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, torch.Tensor):
        return (inputs,), {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    try:
        return tuple(inputs), {}
    except TypeError as error:
        raise ModelError(
            f"the example inputs are a {type(inputs).__qualname__}: expected a tensor, a tuple of "
            "inputs, or a dict of inputs by keyword"
        ) from error


def _without_caches(module: Any, stack: contextlib.ExitStack) -> bool:
    """Disable caches of ``transformers`` models; return whether the module would return one."""
    configs = {id(part.config): part.config for part in module.modules() if hasattr(part, "config")}
    for config in configs.values():
        if getattr(config, "use_cache", False) is True:
            stack.callback(setattr, config, "use_cache", True)
            config.use_cache = False
    whole = getattr(module, "config", None)
    if getattr(whole, "use_cache", None) is not False:
        return False
    # Encoders have the option too, but their configuration says that they are not decoders.
    return bool(getattr(whole, "is_encoder_decoder", False) or getattr(whole, "is_decoder", True))
