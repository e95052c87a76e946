# SPDX-License-Identifier: Apache-2.0
"""The preparation of small PyTorch networks, against PyTorch."""

import numpy as np
import pytest
from graphs import calls, clean, operators
from numpy_relax import evaluate

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tvm import relax  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402
from tvm_droplet_ms.model.prepare import prepare_graph  # noqa: E402


def block(inputs, outputs, kernel=3, stride=1, groups=1, activation=nn.ReLU6):
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), activation())


class InvertedResidual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.layers = nn.Sequential(
            block(channels, 2 * channels, 1),
            block(2 * channels, 2 * channels, groups=2 * channels),
            block(2 * channels, channels, 1, activation=nn.Identity),
        )

    def forward(self, x):
        return x + self.layers(x)


class Mobile(nn.Module):
    """A stem with explicit padding, an inverted residual, and a classifier with dropout."""

    def __init__(self, activation):
        super().__init__()
        self.features = nn.Sequential(
            nn.ZeroPad2d((0, 1, 0, 1)),
            nn.Conv2d(3, 8, 3, 2),
            nn.BatchNorm2d(8),
            activation(),
            InvertedResidual(8),
            block(8, 16, 1, activation=activation),
        )
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(16, 5))

    def forward(self, x):
        features = self.features(x)
        return self.head(nn.functional.adaptive_avg_pool2d(features, 1).flatten(1))


class Shuffle(nn.Module):
    """Two units of ShuffleNet v2: a split, a branch, a concatenation, a channel shuffle."""

    def __init__(self):
        super().__init__()
        self.stem = block(3, 8)
        self.branches = nn.ModuleList(
            nn.Sequential(block(4, 4, 1), block(4, 4, groups=4)) for _ in range(2)
        )
        self.last = block(8, 8, 1)

    def forward(self, x):
        y = self.stem(x)
        for branch in self.branches:
            first, second = y.chunk(2, 1)
            y = torch.cat([first, branch(second)], 1)
            batch, channels, height, width = y.shape
            y = y.view(batch, 2, channels // 2, height, width).transpose(1, 2)
            y = y.contiguous().view(batch, channels, height, width)
        return self.last(y).mean([2, 3])


def randomize(network):
    torch.manual_seed(0)
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            for tensor in (layer.running_mean, layer.bias.data):
                tensor.uniform_(-1, 1)
            for tensor in (layer.running_var, layer.weight.data):
                tensor.uniform_(0.5, 1.5)
    return network.eval()


@pytest.mark.parametrize(
    ("make", "shuffles"),
    [
        (lambda: Mobile(nn.ReLU6), 0),
        (lambda: Mobile(lambda: nn.Hardtanh(-1, 1)), 0),
        (lambda: Mobile(nn.Hardswish), 0),
        (lambda: Mobile(lambda: nn.LeakyReLU(0.1)), 0),
        (Shuffle, 2),
    ],
    ids=["ReLU6", "Hardtanh", "Hardswish", "LeakyReLU", "ShuffleNet v2"],
)
def test_prepared_network_gives_pytorch_outputs(make, shuffles):
    network = randomize(make())
    image = torch.randn(1, 3, 14, 14)
    exported = torch.export.export(network, (image,))
    mod = clean(prepare_graph()(from_exported_program(exported, unwrap_unit_return_tuple=True)))
    counts = operators(mod)
    assert counts["relax.permute_dims"] <= 2 + shuffles
    assert counts["relax.reshape"] <= 1 + 2 * shuffles
    gone = ["nn.batch_norm", "nn.dropout", "nn.pad", "clip", "divide"]
    assert not {name for name in gone if counts[f"relax.{name}"]}
    expected = network(image).detach().numpy()
    actual = evaluate(mod, image.numpy())
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_attention_does_not_stop_the_preparation():
    """PyTorch's attention squeezes a negative axis, at which TVM's layout conversion crashes."""

    class Patches(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(3, 16, 4, 4)
            self.encoder = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

        def forward(self, x):
            return self.encoder(self.patches(x).flatten(2).transpose(1, 2))

    exported = torch.export.export(Patches().eval(), (torch.randn(1, 3, 8, 8),))
    mod = prepare_graph()(from_exported_program(exported, unwrap_unit_return_tuple=True))
    relax.analysis.well_formed(mod)
    assert operators(mod)["relax.nn.conv2d"] == 1
    # The patches leave the convolution in the order that the encoder wants: the input alone turns.
    assert len(calls(mod, "permute_dims")[0].attrs.axes) == 4
