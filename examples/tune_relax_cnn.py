# SPDX-License-Identifier: Apache-2.0
"""Tune a small convolutional network for the host CPU, end to end through Relax.

    python examples/tune_relax_cnn.py --trials 128 --work-dir tuning_logs

The network is written with ``tvm.relax.frontend.nn`` and tuned by the pipeline "droplet_tuning".
The program compares the outputs of the tuned and the untuned network and prints the latency of
both. 128 trials take about three minutes on two cores.
"""

import argparse
import logging
import tempfile

import numpy as np

import tvm
import tvm_droplet_ms  # noqa: F401  registers the pipeline "droplet_tuning"
from tvm import relax
from tvm.relax.frontend import nn
from tvm_droplet_ms.host import host_target

SHAPE = (1, 3, 64, 64)


class SmallCNN(nn.Module):
    """Three convolutions, a global average and a dense layer."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2D(3, 32, 3, padding=1)
        self.conv2 = nn.Conv2D(32, 64, 3, stride=2, padding=1)
        self.conv3 = nn.Conv2D(64, 64, 3, padding=1)
        self.dense = nn.Linear(64, 10)

    def forward(self, image):
        """Classify an image."""
        x = nn.op.relu(self.conv1(image))
        x = nn.op.relu(self.conv2(x))
        x = nn.op.relu(self.conv3(x))
        return self.dense(nn.op.sum(x, axis=[2, 3]) * (1 / (32 * 32)))


def main() -> None:
    """Tune, compile, check and time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=128, help="of all kernels together")
    parser.add_argument("--work-dir", default=tempfile.mkdtemp())
    args = parser.parse_args()
    logging.basicConfig(format="%(message)s")
    logging.getLogger("tvm_droplet_ms").setLevel(logging.INFO)

    spec = {"forward": {"image": nn.spec.Tensor(SHAPE, "float32")}}
    mod, params = SmallCNN().export_tvm(spec)
    target = host_target()
    tune = relax.get_pipeline(
        "droplet_tuning", total_trials=args.trials, target=target, work_dir=args.work_dir
    )
    networks = {
        name: relax.VirtualMachine(tvm.compile(module, target), tvm.cpu())
        for name, module in {"untuned": mod, "tuned": tune(mod)}.items()
    }

    rng = np.random.default_rng(0)
    shapes = [SHAPE, *(tuple(map(int, param.shape)) for _, param in params)]
    arguments = [
        tvm.runtime.tensor(0.1 * rng.standard_normal(shape, dtype="float32")) for shape in shapes
    ]
    outputs = {name: network["forward"](*arguments).numpy() for name, network in networks.items()}
    # The sums are added up in another order, which float32 shows in its last digits.
    tolerance = 1e-4 * np.abs(outputs["untuned"]).max()
    np.testing.assert_allclose(outputs["tuned"], outputs["untuned"], rtol=0, atol=tolerance)
    print("The outputs agree within 1e-4 of the largest.")
    for name, network in networks.items():
        timer = network.time_evaluator("forward", tvm.cpu(), min_repeat_ms=50, repeat=5)
        print(f"{name}: {1e3 * timer(*arguments).median:.3f} ms")


if __name__ == "__main__":
    main()
