# SPDX-License-Identifier: Apache-2.0
"""Small networks of the blocks that image models are made of."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .from_config import tensor


def _conv(
    inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1
) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.SiLU(),
    )


class SqueezeExcite(nn.Module):
    """Weights of the channels from their means."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(channels, channels // 4, 1)
        self.expand = nn.Conv2d(channels // 4, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.mean((2, 3), keepdim=True)
        return x * F.hardsigmoid(self.expand(F.hardswish(self.reduce(mean))))


class UNet(nn.Module):
    """Two levels down by pooling, up by transposed convolutions, with skips."""

    def __init__(self, dims: int = 2) -> None:
        super().__init__()
        conv, up = (nn.Conv2d, nn.ConvTranspose2d) if dims == 2 else (nn.Conv3d, nn.ConvTranspose3d)
        self.pool = nn.MaxPool2d(2) if dims == 2 else nn.MaxPool3d(2)
        self.down1 = nn.Sequential(conv(1, 8, 3, padding=1), nn.ReLU())
        self.down2 = nn.Sequential(conv(8, 16, 3, padding=1), nn.ReLU())
        self.bottom = nn.Sequential(conv(16, 32, 3, padding=1), nn.GroupNorm(4, 32), nn.ReLU())
        self.up2 = up(32, 16, 2, 2)
        self.join2 = nn.Sequential(conv(32, 16, 3, padding=1), nn.LeakyReLU(0.1))
        self.up1 = up(16, 8, 2, 2)
        self.head = conv(16, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one = self.down1(x)
        two = self.down2(self.pool(one))
        low = self.bottom(self.pool(two))
        two = self.join2(torch.cat([self.up2(low), two], 1))
        return self.head(torch.cat([self.up1(two), one], 1))


class FeaturePyramid(nn.Module):
    """Features of three strides, joined from above by resizing, with decoded boxes (YOLO-like)."""

    def __init__(self, mode: str = "nearest") -> None:
        super().__init__()
        self.stages = nn.ModuleList([_conv(3, 8, 3, 2), _conv(8, 16, 3, 2), _conv(16, 32, 3, 2)])
        self.sides = nn.ModuleList([nn.Conv2d(c, 16, 1) for c in (8, 16, 32)])
        self.head = nn.Conv2d(16, 6, 3, padding=1)
        self.mode = mode

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        joined = self.sides[2](features[2])
        boxes = []
        for side, feature in zip(self.sides[1::-1], features[1::-1], strict=True):
            joined = side(feature) + F.interpolate(joined, scale_factor=2, mode=self.mode)
            out = self.head(joined)
            height, width = out.shape[-2:]
            rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
            grid = torch.stack([columns, rows]).float()
            centers = (out[:, :2].sigmoid() * 2 - 0.5 + grid) / width
            sizes = (out[:, 2:4].sigmoid() * 2) ** 2
            boxes.append(torch.cat([centers, sizes, out[:, 4:].sigmoid()], 1).flatten(2))
        merged = torch.cat(boxes, 2)
        scores, best = merged[:, 4:].max(1)
        top = scores.topk(5, -1)
        return merged.transpose(1, 2), best.gather(1, top.indices)


class GhostUnit(nn.Module):
    """Half of the channels by a cheap convolution of the other half."""

    def __init__(self) -> None:
        super().__init__()
        self.primary, self.cheap = _conv(16, 16, 1), _conv(16, 16, 3, 1, 16)
        self.attention = SqueezeExcite(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one = self.primary(x)
        return self.attention(torch.cat([one, self.cheap(one)], 1))


class LargeKernel(nn.Module):
    """A ConvNeXt block with channel-last layer norm and layer scale, and RepLKNet's kernel."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 13, padding=6, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.expand, self.reduce = nn.Linear(channels, 64), nn.Linear(64, channels)
        self.scale = nn.Parameter(torch.ones(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.reduce(F.gelu(self.expand(y)))).permute(0, 3, 1, 2)


class MlpMixer(nn.Module):
    """Patches mixed over places and over channels."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 8, 8)
        self.norms = nn.ModuleList([nn.LayerNorm(32), nn.LayerNorm(32)])
        self.places = nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 64))
        self.channels = nn.Sequential(nn.Linear(32, 64), nn.GELU("tanh"), nn.Linear(64, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = x + self.places(self.norms[0](x).mT).mT
        return (x + self.channels(self.norms[1](x))).mean(1)


class LinearAttention(nn.Module):
    """EfficientViT's attention: ReLU features, products without softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Conv2d(32, 96, 1)
        self.local = nn.Conv2d(96, 96, 5, padding=2, groups=96)
        self.out = nn.Conv2d(32, 32, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, _, height, width = x.shape
        qkv = self.local(self.qkv(x)).reshape(batch, 4, 24, height * width)
        q, k, v = qkv.chunk(3, 2)
        q, k = F.relu(q), F.relu(k)
        v = F.pad(v, (0, 0, 0, 1), value=1.0)
        both = (v @ k.transpose(-1, -2)) @ q
        y = both[:, :, :-1] / (both[:, :, -1:] + 1e-6)
        return self.out(y.reshape(batch, 32, height, width))


class Deformed(nn.Module):
    """A grid of samples (spatial transformer), and an affine one."""

    def __init__(self) -> None:
        super().__init__()
        self.offsets = nn.Conv2d(8, 2, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        height, width = x.shape[-2:]
        rows = torch.linspace(-1, 1, height)[:, None].expand(height, width)
        columns = torch.linspace(-1, 1, width)[None].expand(height, width)
        grid = torch.stack([columns, rows], -1)[None] + 0.1 * self.offsets(x).permute(0, 2, 3, 1)
        return F.grid_sample(x, grid, align_corners=False)


class Upscaler(nn.Module):
    """Super resolution: pixel shuffle, bicubic and bilinear skips, PReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 5, padding=2),
            nn.PReLU(16),
            nn.ReflectionPad2d(1),
            nn.Conv2d(16, 12, 3),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        up = F.pixel_shuffle(self.body(x), 2)
        bicubic = F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=False)
        bilinear = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)
        return up + bicubic + bilinear


class VideoNet(nn.Module):
    """(2+1)-D convolutions and pooling over time (R(2+1)D, SlowFast)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv3d(3, 8, (1, 7, 7), (1, 2, 2), (0, 3, 3))
        self.time = nn.Sequential(
            nn.BatchNorm3d(8), nn.ReLU(), nn.Conv3d(8, 16, (3, 1, 1), padding=(1, 0, 0))
        )
        self.pool = nn.AvgPool3d((2, 3, 3), stride=(2, 2, 2), padding=(0, 1, 1))
        self.head = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.pool(self.time(self.stem(x)))
        return self.head(F.adaptive_avg_pool3d(y, 1).flatten(1))


class DualPath(nn.Module):
    """Max and average pooling with odd sizes, LRN, instance norm, adaptive pooling, dropouts."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 7, 3, 2)
        self.norm = nn.InstanceNorm2d(16, affine=True)
        self.local = nn.LocalResponseNorm(5)
        self.gate = nn.Conv2d(16, 32, 1)
        self.drop = nn.Dropout2d(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.local(self.norm(self.stem(x)))
        one = F.max_pool2d(x, 3, 2, 1, ceil_mode=True)
        two = F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False)
        y = F.glu(self.drop(self.gate(one + two)), 1)
        return torch.cat([F.adaptive_avg_pool2d(y, (3, 5)), F.adaptive_max_pool2d(y, (3, 5))], 1)


def _network(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers)


_IMAGE = tensor(1, 3, 64, 64)

BUILDERS: dict[str, Callable[[], Any]] = {
    "unet": lambda: (UNet(), tensor(1, 1, 32, 32)()),
    "unet_3d": lambda: (UNet(3), tensor(1, 1, 8, 16, 16)()),
    "pyramid_nearest": lambda: (FeaturePyramid(), _IMAGE()),
    "pyramid_bilinear": lambda: (FeaturePyramid("bilinear"), _IMAGE()),
    "squeeze_excite": lambda: (_network(_conv(3, 16), SqueezeExcite(16), nn.Mish()), _IMAGE()),
    "ghost": lambda: (_network(_conv(3, 16, 3, 2), GhostUnit()), _IMAGE()),
    "large_kernel": lambda: (_network(_conv(3, 16, 3, 2), LargeKernel()), _IMAGE()),
    "mlp_mixer": lambda: (MlpMixer(), _IMAGE()),
    "linear_attention": lambda: (LinearAttention(), tensor(1, 32, 8, 8)()),
    "grid_sample": lambda: (Deformed(), tensor(1, 8, 16, 16)()),
    "upscaler": lambda: (Upscaler(), tensor(1, 3, 24, 24)()),
    "video_net": lambda: (VideoNet(), tensor(1, 3, 4, 32, 32)()),
    "dual_path": lambda: (DualPath(), tensor(1, 3, 50, 70)()),
    "weight_norm": lambda: (
        _network(nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 8, 3)), nn.Softplus()),
        _IMAGE(),
    ),
    "torch_transformer": lambda: (
        nn.Transformer(32, 4, 1, 1, 64, batch_first=True),
        (torch.randn(1, 10, 32), torch.randn(1, 6, 32)),
    ),
}
