# SPDX-License-Identifier: Apache-2.0
"""Models of transformers from their configurations."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch


class Config(NamedTuple):
    """A configuration inside another one: the class, such as "ResNetConfig", and its values."""

    kind: str
    values: dict[str, Any]

    def made(self) -> Any:
        import transformers

        return getattr(transformers, self.kind)(**self.values)


def config(kind: str, **values: Any) -> Config:
    """A configuration for a value of ``model``."""
    return Config(kind, values)


def model(
    kind: str,
    inputs: Callable[[], Any],
    part: Callable[[Any], Any] = lambda whole: whole,
    **values: Any,
) -> Callable[[], Any]:
    """A builder of a model of transformers.

    ``kind``: the class, such as "BertModel". Its configuration's class is asked of it. ``inputs``:
    makes the example inputs. ``part``: takes what is wanted of the model. ``values``: what differs
    from the default configuration. Returns a function that makes the model, and its inputs.
    """

    def build() -> Any:
        import transformers

        cls = getattr(transformers, kind)
        made = {k: v.made() if isinstance(v, Config) else v for k, v in values.items()}
        return part(cls(cls.config_class(**made))), inputs()

    return build


SMALL = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128)
"""Values that most configurations have."""

ENCODER_DECODER = {
    f"{part}_{name}": value
    for part in ("encoder", "decoder")
    for name, value in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 128))
}
"""Values that most configurations of an encoder and a decoder have."""


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
