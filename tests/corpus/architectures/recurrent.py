# SPDX-License-Identifier: Apache-2.0
"""Recurrent networks."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .from_config import tensor


class Tagger(nn.Module):
    """Embeddings, a recurrent layer in both directions, a label for each token."""

    def __init__(self, layer: type[nn.Module], **options: Any) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 16)
        self.layer = layer(16, 24, bidirectional=True, batch_first=True, **options)
        self.head = nn.Linear(48, 5)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(self.table(tokens))[0])


class Crnn(nn.Module):
    """Text recognition: convolutions, columns as a sequence, LSTMs in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d((2, 1)),
        )
        self.layers = nn.LSTM(16 * 4, 24, 2, bidirectional=True)
        self.head = nn.Linear(48, 20)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        columns = self.features(x).flatten(1, 2).permute(2, 0, 1)
        return F.log_softmax(self.head(self.layers(columns)[0]), -1)


class Cells(nn.Module):
    """A loop over cells, written out."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.LSTMCell(8, 16), nn.GRUCell(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = c = g = torch.zeros(x.shape[1], 16)
        for step in x:
            h, c = self.one(step, (h, c))
            g = self.two(h, g)
        return g


def _states(layer: nn.Module, length: int, *shapes: tuple[int, ...]) -> Any:
    states = tuple(torch.randn(*shape) for shape in shapes)
    return layer, (torch.randn(length, 2, 16), states if len(states) > 1 else states[0])


def _tokens() -> Any:
    return (torch.randint(0, 50, (2, 12)),)


BUILDERS: dict[str, Callable[[], Any]] = {
    "lstm_tagger": lambda: (Tagger(nn.LSTM, num_layers=2), _tokens()),
    "gru_tagger": lambda: (Tagger(nn.GRU, num_layers=2), _tokens()),
    "rnn_tagger": lambda: (Tagger(nn.RNN), _tokens()),
    "rnn_relu": lambda: (Tagger(nn.RNN, nonlinearity="relu"), _tokens()),
    "lstm_states": lambda: _states(nn.LSTM(16, 24, 2), 10, (2, 2, 24), (2, 2, 24)),
    "lstm_projected": lambda: _states(nn.LSTM(16, 24, proj_size=8), 10, (1, 2, 8), (1, 2, 24)),
    "gru_states": lambda: _states(nn.GRU(16, 24, bias=False), 10, (1, 2, 24)),
    "lstm_long": lambda: (nn.LSTM(16, 32, batch_first=True), tensor(1, 200, 16)()),
    "crnn": lambda: (Crnn(), tensor(1, 1, 16, 48)()),
    "cells": lambda: (Cells(), tensor(6, 2, 8)()),
}
