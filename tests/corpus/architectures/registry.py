# SPDX-License-Identifier: Apache-2.0
"""All architectures by name."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from . import blocks, recurrent, series, sound, text, transformers_sound, vision, vision_tasks

Built = tuple[torch.nn.Module, Any]
"""A module in inference mode, and its example inputs: a tuple, or a dict of keyword inputs."""

BUILDERS: dict[str, Callable[[], Built]] = {
    **text.BUILDERS,
    **vision.BUILDERS,
    **vision_tasks.BUILDERS,
    **transformers_sound.BUILDERS,
    **series.BUILDERS,
    **blocks.BUILDERS,
    **sound.BUILDERS,
    **recurrent.BUILDERS,
}


def build(name: str, seed: int = 0) -> Built:
    """Make a network with random weights.

    ``name``: one of ``BUILDERS``. ``seed``: seed of weights and inputs. Returns the module in
    inference mode, and its example inputs.
    """
    torch.manual_seed(seed)
    module, inputs = BUILDERS[name]()
    module.eval()
    spread_weights(module)
    return module, inputs


def spread_weights(module: torch.nn.Module) -> None:
    """Draw all parameters anew, so that activations neither vanish nor saturate.

    Initial weights of deep networks are small, zero, or one: outputs of 1e-40, and biases that no
    comparison would miss.
    """
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.dim() > 1:
                fan_in = parameter[0].numel()
                parameter.normal_(0, fan_in**-0.5)
            elif "bias" in name:
                parameter.normal_(0, 0.1)
            else:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
        for name, buffer in module.named_buffers():
            if name.endswith("running_mean"):
                buffer.normal_(0, 0.1)
            if name.endswith("running_var"):
                buffer.uniform_(0.5, 1.5)


def leaves(inputs: Any) -> list[np.ndarray]:
    """The tensors of inputs or outputs as arrays, in order."""
    flat = torch.utils._pytree.tree_leaves(inputs)
    return [leaf.detach().numpy() for leaf in flat if isinstance(leaf, torch.Tensor)]


def outputs_of(module: torch.nn.Module, inputs: Any) -> list[np.ndarray]:
    """The outputs of PyTorch: the tensors among them, in order, without caches."""
    for part in module.modules():
        if hasattr(part, "config") and hasattr(part.config, "use_cache"):
            part.config.use_cache = False
    arguments, keywords = arguments_of(inputs)
    with torch.no_grad():
        return leaves(module(*arguments, **keywords))


def arguments_of(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Example inputs as arguments by place and by name."""
    if isinstance(inputs, dict):
        return (), inputs
    return (inputs if isinstance(inputs, tuple) else (inputs,)), {}
