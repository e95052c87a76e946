# SPDX-License-Identifier: Apache-2.0
"""Models of transformers from their configurations."""

from collections.abc import Callable
from typing import Any

import torch


def model(kind: str, inputs: Callable[[], Any], **config: Any) -> Callable[[], Any]:
    """A builder of a model of transformers.

    ``kind``: the class, such as "BertModel". Its configuration's class is asked of it. ``inputs``:
    makes the example inputs. ``config``: what differs from the default configuration. Returns a
    function that makes the model, and its inputs.
    """

    def build() -> Any:
        import transformers

        cls = getattr(transformers, kind)
        return cls(cls.config_class(**config)), inputs()

    return build


def ids(length: int = 16, vocabulary: int = 100) -> Callable[[], tuple[torch.Tensor]]:
    """Token numbers of one sequence."""
    return lambda: (torch.randint(2, vocabulary, (1, length)),)


def masked_ids(length: int = 16, vocabulary: int = 100) -> Callable[[], dict[str, torch.Tensor]]:
    """Token numbers of two sequences, one of them padded, with their mask, as tokenizers give."""

    def make() -> dict[str, torch.Tensor]:
        mask = torch.ones(2, length, dtype=torch.int64)
        mask[1, length // 2 :] = 0
        return {"input_ids": torch.randint(2, vocabulary, (2, length)), "attention_mask": mask}

    return make


def pair_ids(length: int = 16, vocabulary: int = 100) -> Callable[[], dict[str, torch.Tensor]]:
    """Token numbers of an encoder's and a decoder's sequence."""
    return lambda: {
        "input_ids": torch.randint(2, vocabulary, (1, length)),
        "decoder_input_ids": torch.randint(2, vocabulary, (1, length // 2)),
    }


def image(size: int = 64, channels: int = 3) -> Callable[[], tuple[torch.Tensor]]:
    """One image."""
    return lambda: (torch.randn(1, channels, size, size),)


def tensor(*shape: int) -> Callable[[], tuple[torch.Tensor]]:
    """One tensor."""
    return lambda: (torch.randn(*shape),)
