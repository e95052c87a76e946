# SPDX-License-Identifier: Apache-2.0
"""A small network, its input, and its output by NumPy. As a program, it tunes the network.

``python small_network.py DIRECTORY TRIALS`` is for the tests that kill a run.
"""

import sys

import numpy as np

from tvm.relax.frontend import nn

SHAPE = (1, 3, 12, 12)


class SmallNet(nn.Module):
    """A network of a convolution, a maximum and a dense layer."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2D(3, 8, 3, padding=1)
        self.dense = nn.Linear(8, 10)

    def forward(self, image):
        return self.dense(nn.op.max(nn.op.relu(self.conv(image)), axis=[2, 3]))


def small_model():
    """The network as Relax, and its parameters by name."""
    spec = {"forward": {"image": nn.spec.Tensor(SHAPE, "float32")}}
    mod, params = SmallNet().export_tvm(spec)
    generator = np.random.default_rng(0)
    arrays = {
        name: generator.standard_normal([int(extent) for extent in parameter.shape])
        for name, parameter in params
    }
    return mod, {name: array.astype("float32") for name, array in arrays.items()}


def small_image():
    """An input."""
    return np.random.default_rng(1).standard_normal(SHAPE).astype("float32")


def expected_output(arrays, image):
    """The output by NumPy."""
    params = {name.partition(".")[0] + name.rpartition(".")[2]: a for name, a in arrays.items()}
    padded = np.pad(image[0], ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    layer = np.einsum("chwij,ocij->ohw", windows, params["convweight"])
    layer = np.maximum(layer + params["convbias"][:, None, None], 0).max(axis=(1, 2))
    return (params["denseweight"] @ layer + params["densebias"])[None]


if __name__ == "__main__":
    from tvm_droplet_ms.tuning import tune

    tune(small_model(), work_dir=sys.argv[1], trials=int(sys.argv[2]), time_budget_s=600)
