# SPDX-License-Identifier: Apache-2.0
"""Decoders of transformers with their own static cache: a step, or a prompt."""

import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from .others import of_onnx, of_pytorch, write_onnx
from .timing import in_turns

PLACE = 17
"""The place in the cache of the first new token."""

SIZES = {"20M": (384, 6, 6, 2, 1024, 16000), "110M": (768, 12, 12, 4, 2048, 32000)}
"""Width, layers, heads of queries and of keys, inner width, and words."""


def decoder(kind: str, size: str, length: int) -> Any:
    """A decoder with random weights, whose cache has so many places."""
    import torch
    import transformers
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

    torch.manual_seed(0)
    width, layers, heads, of_keys, inner, words = SIZES[size]
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=words,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=of_keys,
        max_position_embeddings=8192,
        tie_word_embeddings=False,
        attn_implementation="sdpa",
    )
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    settings = model.generation_config
    settings.cache_implementation, settings.use_cache = "static", True
    settings.cache_config = {"batch_size": 1, "max_cache_len": length}
    return TorchExportableModuleWithStaticCache(
        model, batch_size=1, max_cache_len=length, device=torch.device("cpu")
    )


def measure(
    kind: str, size: str, length: int, tokens: int, *, minutes: float, precision: str
) -> dict[str, Any]:
    """Tune one and time it in turns with others, on a core. Returns a row."""
    import torch

    from tvm_droplet_ms import tune

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    module = decoder(kind, size, length)
    given = {
        "input_ids": torch.arange(tokens)[None] + 1,
        "cache_position": torch.arange(tokens) + PLACE,
    }

    def export() -> Any:
        return torch.export.export(module, (), given, strict=False)

    limits = {"time_budget_s": 60 * minutes} if minutes else {"trials": 0}
    result = tune(export(), precision=precision, progress=None, **limits)
    arrays = [
        given[spec.name].numpy()
        if spec.name in given
        else np.full(spec.shape, PLACE * (not spec.shape), spec.dtype)
        for spec in result.inputs
    ]
    timer = result.compiled.timer(arrays)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "decoder.onnx"
        write_onnx(export(), arrays, path)
        hint = "bf16" if precision == "bfloat16" else "f32"
        runs = {"tune": timer, **of_pytorch(module, given), **of_onnx(path, arrays, hint)}
        secs = in_turns(runs, 21)
    return {
        "kind": f"{kind}, {size}",
        "length": length,
        "tokens": tokens,
        "precision": precision,
        "minutes": minutes,
        "deviation": result.deviation,
        "trials": result.trials,
        "secs": secs,
    }
