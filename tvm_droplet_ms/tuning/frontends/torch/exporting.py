# SPDX-License-Identifier: Apache-2.0
"""A module of PyTorch as an exported program."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from ....session.errors import ModelError
from .loading import first_line

CACHE_NOTE = (
    "the module returns a cache of keys and values (transformers), which is left out of the "
    "outputs: it was exported with config.use_cache = False"
)


def export_module(torch: Any, module: Any, example_inputs: Any) -> tuple[Any, list[str]]:
    """Export a module.

    ``module``: the module, in inference mode. ``example_inputs``: its inputs: one, several by
    position, or several by keyword (as tokenizers return them). Returns ``program``: the program;
    ``notes``: what a user should know, in sentences. Raises ``ModelError`` if inputs are missing,
    the module is in training mode, or PyTorch cannot export it.
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
