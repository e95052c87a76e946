# SPDX-License-Identifier: Apache-2.0
"""Models with random weights that need no download."""

from pathlib import Path
from typing import Any

import numpy as np

ONNX_MODELS = ("resnet50", "vgg19", "densenet121", "inception_v2", "squeezenet", "shufflenet")
"""Models that the ``onnx`` package ships without weights."""

TORCH_MODELS = ("mobilenet_v2", "bert_4_layers", "vit_tiny", "whisper_encoder_2_layers")
"""Models that this module defines in PyTorch."""

MODELS = (*ONNX_MODELS, *TORCH_MODELS)

TRAINING_MODELS = ("unet_3d",)
"""PyTorch models that serve only as training data."""


def load_model(name: str) -> Any:
    """Make a model in a form that ``tune`` accepts."""
    return light_onnx(name) if name in ONNX_MODELS else torch_model(name)


def light_onnx(name: str) -> Any:
    """A model of the ``onnx`` package with different random values for each weight.

    Its softmax becomes an identity, because a softmax hides wrong outputs.
    """
    import onnx

    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    model = onnx.load(folder / f"light_{name}.onnx")
    # Since IR version 4, weights need not be inputs.
    model.ir_version = max(model.ir_version, 4)
    generator = np.random.default_rng(0)
    constants = {
        tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer
    }
    for node in list(model.graph.node):
        if node.op_type == "ConstantOfShape":
            shape = constants[node.input[0]]
            # A variance of 1 / fan-in preserves the scale from layer to layer. A vector is a bias
            # or a variance, and variances must be positive.
            values = generator.uniform(0.5, 1.5, shape)
            if len(shape) > 1:
                values = generator.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
            weight = onnx.numpy_helper.from_array(values.astype("float32"), node.output[0])
            model.graph.initializer.append(weight)
            model.graph.node.remove(node)
        elif node.op_type == "Softmax":
            node.CopyFrom(onnx.helper.make_node("Identity", node.input, node.output))
    return model


def torch_model(name: str) -> Any:
    """A PyTorch module in inference mode, and its example inputs."""
    import torch

    torch.manual_seed(0)
    if name == "vit_tiny":
        return _vit_tiny(torch).eval(), (torch.randn(1, 3, 224, 224),)
    if name == "whisper_encoder_2_layers":
        return _whisper_encoder(torch).eval(), (torch.randn(1, 80, 3000),)
    if name == "unet_3d":
        return _unet_3d(torch).eval(), (torch.randn(1, 1, 16, 64, 64),)
    if name == "bert_4_layers":
        layer = torch.nn.TransformerEncoderLayer(
            256, nhead=4, dim_feedforward=1024, activation="gelu", batch_first=True
        )
        encoder = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        return encoder.eval(), (torch.randn(1, 128, 256),)
    mobilenet = _mobilenet_v2(torch)
    image = torch.randn(1, 3, 224, 224)
    # The batch norms of an untrained network let its activations vanish, and then any program would
    # have correct outputs. So the batch norms get the statistics of an image.
    for layer in mobilenet.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.momentum = None
    with torch.no_grad():
        mobilenet.train()(image)
    return mobilenet.eval(), (image,)


MOBILENET_V2 = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, output channels, blocks and stride of each stage ("MobileNetV2: Inverted Residuals and
Linear Bottlenecks", Sandler et al., 2018, table 2)."""


def _mobilenet_v2(torch: Any) -> Any:
    nn = torch.nn

    def layer(inputs: int, outputs: int, size: int, stride: int, groups: int = 1) -> list[Any]:
        padding = size // 2
        convolution = nn.Conv2d(inputs, outputs, size, stride, padding, groups=groups, bias=False)
        return [convolution, nn.BatchNorm2d(outputs)]

    class Block(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
            super().__init__()
            hidden = inputs * expansion
            expand = [*layer(inputs, hidden, 1, 1), nn.ReLU6()] if expansion > 1 else []
            self.layers = nn.Sequential(
                *expand,
                *layer(hidden, hidden, 3, stride, groups=hidden),
                nn.ReLU6(),
                *layer(hidden, outputs, 1, 1),
            )
            self.has_residual = stride == 1 and inputs == outputs

        def forward(self, x: Any) -> Any:
            return x + self.layers(x) if self.has_residual else self.layers(x)

    layers = [*layer(3, 32, 3, 2), nn.ReLU6()]
    inputs = 32
    for expansion, outputs, blocks, stride in MOBILENET_V2:
        for number in range(blocks):
            layers.append(Block(inputs, outputs, stride if number == 0 else 1, expansion))
            inputs = outputs
    layers += [*layer(inputs, 1280, 1, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(1280, 1000))


def _vit_tiny(torch: Any) -> Any:
    """ViT-Ti/16 for 224x224 images ("Training data-efficient image transformers", Touvron et al.,
    2021, table 1)."""
    nn = torch.nn

    class Vit(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, 192, 16, 16)
            self.token = nn.Parameter(torch.randn(1, 1, 192))
            self.positions = nn.Parameter(torch.randn(1, 197, 192))
            self.layers = _pre_norm_layers(torch, 192, heads=3, layers=12)
            self.head = nn.Linear(192, 1000)

        def forward(self, x: Any) -> Any:
            tokens = self.patches(x).flatten(2).transpose(1, 2)
            tokens = torch.cat([self.token, tokens], dim=1) + self.positions
            return self.head(self.layers(tokens)[:, 0])

    return Vit()


def _whisper_encoder(torch: Any) -> Any:
    """Whisper tiny's encoder with two of its four layers ("Robust Speech Recognition via
    Large-Scale Weak Supervision", Radford et al., 2022, table 1)."""
    nn = torch.nn

    class Encoder(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv1d(80, 384, 3, padding=1)
            self.second = nn.Conv1d(384, 384, 3, stride=2, padding=1)
            self.positions = nn.Parameter(torch.randn(1500, 384))
            self.layers = _pre_norm_layers(torch, 384, heads=6, layers=2)

        def forward(self, x: Any) -> Any:
            gelu = nn.functional.gelu
            frames = gelu(self.second(gelu(self.first(x)))).transpose(1, 2)
            return self.layers(frames + self.positions)

    return Encoder()


def _unet_3d(torch: Any) -> Any:
    """A U-Net for volumes with four levels ("3D U-Net", Çiçek et al., 2016, figure 2)."""
    nn = torch.nn

    def level(inputs: int, hidden: int, outputs: int) -> Any:
        layers = [nn.Conv3d(inputs, hidden, 3, padding=1), nn.ReLU()]
        return nn.Sequential(*layers, nn.Conv3d(hidden, outputs, 3, padding=1), nn.ReLU())

    class UNet(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            widths = (32, 64, 128, 256)
            self.down = nn.ModuleList(
                level(1 if width == 32 else width // 2, max(width // 2, 32), width)
                for width in widths
            )
            self.up = nn.ModuleList(nn.ConvTranspose3d(w, w, 2, 2) for w in widths[:0:-1])
            self.join = nn.ModuleList(level(3 * w, w, w) for w in widths[-2::-1])
            self.head = nn.Conv3d(widths[0], 3, 1)

        def forward(self, x: Any) -> Any:
            skips = []
            for number, down in enumerate(self.down):
                x = down(nn.functional.max_pool3d(x, 2) if number else x)
                skips.append(x)
            for up, join, skip in zip(self.up, self.join, skips[-2::-1], strict=True):
                x = join(torch.cat([up(x), skip], 1))
            return self.head(x)

    return UNet()


def _pre_norm_layers(torch: Any, width: int, *, heads: int, layers: int) -> Any:
    layer = torch.nn.TransformerEncoderLayer(
        width, heads, 4 * width, activation="gelu", batch_first=True, norm_first=True
    )
    norm = torch.nn.LayerNorm(width)
    return torch.nn.TransformerEncoder(layer, layers, norm, enable_nested_tensor=False)
