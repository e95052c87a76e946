# SPDX-License-Identifier: Apache-2.0
"""Front ends and networks of sound, as torchaudio has them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .from_config import tensor


class MelSpectrogram(nn.Module):
    """Spectrogram by ``torch.stft``, mel filters, decibels."""

    def __init__(self, size: int = 128, hop: int = 64, mels: int = 20) -> None:
        super().__init__()
        self.size, self.hop = size, hop
        self.register_buffer("window", torch.hann_window(size))
        self.register_buffer("filters", torch.rand(size // 2 + 1, mels))

    def forward(self, wave: torch.Tensor) -> torch.Tensor:
        spectrum = torch.stft(
            wave, self.size, self.hop, window=self.window, center=True, return_complex=True
        )
        power = spectrum.abs() ** 2
        mel = power.transpose(-1, -2) @ self.filters
        decibels = 10 * torch.log10(mel.clamp_min(1e-10))
        return torch.maximum(decibels, decibels.amax((-2, -1), keepdim=True) - 80)


class FramedSpectrogram(nn.Module):
    """The same by frames (``unfold``) and a real FFT."""

    def __init__(self, size: int = 128, hop: int = 64) -> None:
        super().__init__()
        self.size, self.hop = size, hop
        self.register_buffer("window", torch.hamming_window(size))

    def forward(self, wave: torch.Tensor) -> torch.Tensor:
        frames = wave.unfold(-1, self.size, self.hop) * self.window
        spectrum = torch.view_as_real(torch.fft.rfft(frames, dim=-1))
        return torch.log1p(spectrum.pow(2).sum(-1))


class ConvolvedSpectrogram(nn.Module):
    """The same by a convolution with sines and cosines (as silero-vad has it)."""

    def __init__(self, size: int = 64, hop: int = 32) -> None:
        super().__init__()
        bins = size // 2 + 1
        angle = 2 * torch.pi / size * torch.arange(bins)[:, None] * torch.arange(size)
        self.register_buffer("basis", torch.cat([angle.cos(), angle.sin()])[:, None])
        self.hop = hop

    def forward(self, wave: torch.Tensor) -> torch.Tensor:
        padded = F.pad(wave[:, None], (16, 16), mode="reflect")
        real, imaginary = F.conv1d(padded, self.basis, stride=self.hop).chunk(2, 1)
        return torch.sqrt(real**2 + imaginary**2 + 1e-9)


class TemporalBlock(nn.Module):
    """Dilated depthwise convolutions with global layer norm (Conv-TasNet)."""

    def __init__(self, channels: int, hidden: int, dilation: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(channels, hidden, 1),
            nn.PReLU(),
            nn.GroupNorm(1, hidden),
            nn.Conv1d(hidden, hidden, 3, padding=dilation, dilation=dilation, groups=hidden),
            nn.PReLU(),
            nn.GroupNorm(1, hidden),
        )
        self.residual, self.skip = nn.Conv1d(hidden, channels, 1), nn.Conv1d(hidden, channels, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.layers(x)
        return x + self.residual(y), self.skip(y)


class ConvTasNet(nn.Module):
    """Separates two sources: encoder, masks, decoder by a transposed convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Conv1d(1, 32, 16, 8, 8, bias=False)
        self.narrow = nn.Conv1d(32, 16, 1)
        self.blocks = nn.ModuleList(TemporalBlock(16, 32, 2**i) for i in range(3))
        self.masks = nn.Sequential(nn.PReLU(), nn.Conv1d(16, 64, 1), nn.Sigmoid())
        self.decoder = nn.ConvTranspose1d(32, 1, 16, 8, 8, bias=False)

    def forward(self, wave: torch.Tensor) -> torch.Tensor:
        features = self.encoder(wave[:, None])
        x, total = self.narrow(features), 0.0
        for block in self.blocks:
            x, skip = block(x)
            total = total + skip
        masks = self.masks(total).view(wave.shape[0], 2, 32, -1)
        masked = (masks * features[:, None]).flatten(0, 1)
        return self.decoder(masked).view(wave.shape[0], 2, -1)


class CausalTcn(nn.Module):
    """A temporal convolutional network with causal padding."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv1d(8 if i == 0 else 16, 16, 3, dilation=2**i) for i in range(4)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i, conv in enumerate(self.convs):
            y = F.elu(conv(F.pad(x, (2 * 2**i, 0))))
            x = y + x if y.shape == x.shape else y
        return x


class WaveNet(nn.Module):
    """Gated dilated convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, 16, 1)
        self.gates = nn.ModuleList(nn.Conv1d(16, 32, 2, dilation=2**i) for i in range(3))
        self.outs = nn.ModuleList(nn.Conv1d(16, 16, 1) for _ in range(3))

    def forward(self, wave: torch.Tensor) -> torch.Tensor:
        x = self.first(wave[:, None])
        for gate, out in zip(self.gates, self.outs, strict=True):
            a, b = gate(x).chunk(2, 1)
            y = out(torch.tanh(a) * torch.sigmoid(b))
            x = y + x[..., -y.shape[-1] :]
        return x


class KeywordSpotter(nn.Module):
    """Mel spectrogram, depthwise separable convolutions, statistics pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.front = MelSpectrogram()
        self.layers = nn.Sequential(
            nn.Conv1d(20, 32, 5, 2),
            nn.BatchNorm1d(32),
            nn.ReLU(),
            nn.Conv1d(32, 32, 3, groups=32),
            nn.Conv1d(32, 48, 1),
            nn.BatchNorm1d(48),
            nn.Hardswish(),
        )
        self.head = nn.Linear(96, 10)

    def forward(self, wave: torch.Tensor) -> torch.Tensor:
        x = self.layers(self.front(wave).transpose(1, 2))
        pooled = torch.cat([x.mean(-1), x.std(-1)], -1)
        return F.log_softmax(self.head(pooled), -1)


class Resampler(nn.Module):
    """A polyphase filter, and nearest and linear interpolation over time."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kernel", torch.randn(3, 1, 11))

    def forward(self, wave: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = wave[:, None]
        fast = F.conv1d(F.pad(x, (5, 5)), self.kernel, stride=2).transpose(1, 2).flatten(1)
        linear = F.interpolate(x, scale_factor=1.5, mode="linear", align_corners=False)
        return fast, linear, F.interpolate(x, size=300, mode="nearest")


_WAVE = tensor(1, 1024)

BUILDERS: dict[str, Callable[[], Any]] = {
    "mel_spectrogram": lambda: (MelSpectrogram(), _WAVE()),
    "framed_spectrogram": lambda: (FramedSpectrogram(), _WAVE()),
    "convolved_spectrogram": lambda: (ConvolvedSpectrogram(), _WAVE()),
    "conv_tasnet": lambda: (ConvTasNet(), _WAVE()),
    "causal_tcn": lambda: (CausalTcn(), tensor(1, 8, 100)()),
    "wavenet": lambda: (WaveNet(), _WAVE()),
    "keyword_spotter": lambda: (KeywordSpotter(), _WAVE()),
    "resampler": lambda: (Resampler(), tensor(1, 200)()),
}
