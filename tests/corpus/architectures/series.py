# SPDX-License-Identifier: Apache-2.0
"""Models of time series and tables."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .from_config import model, tensor


class TabularTransformer(nn.Module):
    """A token for each column, as in FT-Transformer (Gorishniy et al., NeurIPS 2021)."""

    def __init__(self, numbers: int, categories: tuple[int, ...], width: int = 32) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(numbers, width))
        self.offset = nn.Parameter(torch.zeros(numbers, width))
        self.tables = nn.ModuleList(nn.Embedding(count, width) for count in categories)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, batch_first=True, norm_first=True, activation="gelu"
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 3)

    def forward(self, numbers: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        tokens = [numbers[..., None] * self.weight + self.offset]
        tokens += [table(categories[:, i : i + 1]) for i, table in enumerate(self.tables)]
        first = self.first.expand(len(numbers), -1, -1)
        return self.head(self.layers(torch.cat([first, *tokens], 1))[:, 0])


class Blocks(nn.Module):
    """Fully connected blocks with a backcast and a forecast, as in N-BEATS (Oreshkin et al.)."""

    def __init__(self, length: int = 48, horizon: int = 12) -> None:
        super().__init__()
        self.length = length
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Linear(length, 64),
                nn.ReLU(),
                nn.Linear(64, 64),
                nn.ReLU(),
                nn.Linear(64, length + horizon),
            )
            for _ in range(3)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = 0.0
        for block in self.blocks:
            back, forecast = block(x).split([self.length, 12], -1)
            x = x - back
            total = total + forecast
        return total


def _tabular() -> Any:
    categories = torch.stack([torch.randint(0, 5, (4,)), torch.randint(0, 7, (4,))], 1)
    return TabularTransformer(6, (5, 7)), (torch.randn(4, 6), categories)


def _forecasting(history: int, horizon: int) -> Callable[[], dict[str, torch.Tensor]]:
    return lambda: {
        "past_values": torch.randn(1, history),
        "past_time_features": torch.randn(1, history, 2),
        "past_observed_mask": torch.ones(1, history),
        "future_values": torch.randn(1, horizon),
        "future_time_features": torch.randn(1, horizon, 2),
    }


_FORECAST = dict(
    prediction_length=8,
    context_length=16,
    lags_sequence=[1, 2, 3, 4],
    num_time_features=2,
    d_model=32,
    encoder_layers=1,
    decoder_layers=1,
    encoder_attention_heads=2,
    decoder_attention_heads=2,
    encoder_ffn_dim=32,
    decoder_ffn_dim=32,
)

BUILDERS: dict[str, Callable[[], Any]] = {
    "patchtst": model(
        "PatchTSTForPrediction",
        tensor(1, 64, 3),
        num_input_channels=3,
        context_length=64,
        patch_length=8,
        patch_stride=8,
        num_hidden_layers=2,
        d_model=32,
        num_attention_heads=4,
        ffn_dim=64,
        prediction_length=12,
    ),
    "patchtsmixer": model(
        "PatchTSMixerForPrediction",
        tensor(1, 64, 3),
        num_input_channels=3,
        context_length=64,
        patch_length=8,
        patch_stride=8,
        d_model=16,
        num_layers=2,
        prediction_length=12,
    ),
    "time_series_transformer": model(
        "TimeSeriesTransformerModel", _forecasting(20, 8), **_FORECAST
    ),
    "informer": model("InformerModel", _forecasting(20, 8), **_FORECAST),
    "autoformer": model(
        "AutoformerModel", _forecasting(20, 8), **_FORECAST, label_length=4, moving_average=5
    ),
    "timesfm": model(
        "TimesFmModel",
        lambda: (torch.randn(1, 64), torch.zeros(1, 64), torch.zeros(1, 1, dtype=torch.int64)),
        patch_length=16,
        context_length=64,
        horizon_length=16,
        num_hidden_layers=2,
        hidden_size=32,
        intermediate_size=32,
        head_dim=8,
        num_attention_heads=4,
    ),
    "tabular_transformer": _tabular,
    "nbeats": lambda: (Blocks(), tensor(4, 48)()),
}
