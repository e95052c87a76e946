# SPDX-License-Identifier: Apache-2.0
"""PyTorch itself, its files, and its modules as exported programs."""

import contextlib
import logging
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...session.errors import ModelError
from ..extents import Shapes
from ..imported import first_line
from .open_extents import resized_examples

if TYPE_CHECKING:
    import torch

CACHE_NOTE = (
    "the module returns a cache of keys and values (transformers), which is left out of the "
    "outputs: it was exported with config.use_cache = False"
)


def load_exported_program(path: str) -> "torch.export.ExportedProgram":
    """Read a file of ``torch.export.save``. Raises ``ModelError`` if it holds no program."""
    torch = import_pytorch()
    # PyTorch warns of a file that it cannot read with a traceback, and then raises an error.
    logger = logging.getLogger("torch.export")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # Of PyTorch about itself.
            return torch.export.load(path)
    except Exception as error:
        raise ModelError(
            f"model {path!r} is no file of torch.export.save: {first_line(error)}"
        ) from error
    finally:
        logger.setLevel(level)


def import_pytorch() -> Any:
    """The package ``torch``. Raises ``ModelError`` if it is missing."""
    try:
        import torch
    except ImportError as error:
        raise ModelError("a PyTorch model needs the package torch: pip install torch") from error
    return torch


def line_of(node: Any) -> str:
    """The place in a model's code that a node comes from, for a sentence."""
    lines = (node.meta.get("stack_trace") or "").strip().splitlines()
    return f" ({lines[-1].strip()})" if lines else ""


def unlifted(program: Any) -> Any:
    """The module of an exported program, without the checks of its inputs' extents."""
    try:
        return program.module(check_guards=False)
    except TypeError:
        # Before PyTorch 2.9 there was nothing to leave out.
        return program.module()


def export_module(
    torch: Any, module: Any, example_inputs: Any, shapes: Shapes
) -> tuple[Any, list[str]]:
    """Export a module with its inputs: one, several by position, or several by keyword.

    ``shapes``: those to export it for, where they are not those of the inputs. Returns what a user
    should know too, in sentences. Raises ``ModelError`` if inputs are missing, the module is in
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
    """Ask models of transformers for no caches; says whether the module would have returned one."""
    configs = {id(part.config): part.config for part in module.modules() if hasattr(part, "config")}
    for config in configs.values():
        if getattr(config, "use_cache", False) is True:
            stack.enter_context(_use_no_cache(config))
    whole = getattr(module, "config", None)
    if getattr(whole, "use_cache", None) is not False:
        return False
    # Encoders have the option, too: their configuration says that they are no decoders.
    return bool(getattr(whole, "is_encoder_decoder", False) or getattr(whole, "is_decoder", True))


@contextlib.contextmanager
def _use_no_cache(config: Any) -> Iterator[None]:
    config.use_cache = False
    try:
        yield
    finally:
        config.use_cache = True
