# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""Tune a small convolutional network for this machine's CPU, end to end through Relax.

The network is written with ``tvm.relax.frontend.nn``, tuned by the pipeline "droplet_tuning",
compiled, and run on Relax's virtual machine. The program checks the tuned network's output
against the untuned one's, and prints the latency of both. With the default number of trials it
takes about three minutes on two cores.

    python examples/tune_relax_cnn.py --trials 128 --work-dir tuning_logs

A second run with the same work directory goes on from the records of the first.
"""

import argparse
import logging
import tempfile

import numpy as np

import tvm

# Importing the package registers its pipeline.
import tvm_droplet_ms  # noqa: F401
from tvm import relax
from tvm.relax.frontend import nn
from tvm_droplet_ms.host import host_target

IMAGE_SHAPE = (1, 3, 64, 64)


class SmallCNN(nn.Module):
    """Three convolutions, a global average and a dense layer, for images of 64 x 64."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2D(3, 32, 3, padding=1)
        self.conv2 = nn.Conv2D(32, 64, 3, stride=2, padding=1)
        self.conv3 = nn.Conv2D(64, 64, 3, padding=1)
        self.dense = nn.Linear(64, 10)

    def forward(self, image):
        x = nn.op.relu(self.conv1(image))
        x = nn.op.relu(self.conv2(x))
        x = nn.op.relu(self.conv3(x))
        return self.dense(nn.op.sum(x, axis=[2, 3]) * (1 / (32 * 32)))


def random_arguments(params, seed):
    """An image and weights of unit scale, in the order in which the network takes them."""
    rng = np.random.default_rng(seed)
    arguments = [rng.standard_normal(IMAGE_SHAPE, dtype="float32")]
    for _, param in params:
        shape = [int(extent) for extent in param.shape]
        scale = np.sqrt(2 / max(np.prod(shape[1:]), 1))
        arguments.append(np.float32(scale) * rng.standard_normal(shape, dtype="float32"))
    return [tvm.runtime.tensor(argument) for argument in arguments]


def compare_latency(machines, arguments, rounds=15):
    """Time the machines in turn, so that a change of the machine's speed meets all of them."""
    seconds = {name: [] for name in machines}
    for _ in range(rounds):
        for name, machine in machines.items():
            evaluate = machine.time_evaluator("forward", tvm.cpu(), number=1, min_repeat_ms=50)
            seconds[name].append(evaluate(*arguments).mean)
    for name, times in seconds.items():
        low, median, high = 1e3 * np.percentile(times, [10, 50, 90])
        print(f"{name:>8}: {median:9.3f} ms  (10th to 90th percentile {low:.3f} to {high:.3f})")


def main():
    """Tune, compile, check and time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=128, help="measurements in all")
    parser.add_argument("--work-dir", help="keep the records here (default: a temporary folder)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    logging.basicConfig(format="%(message)s")
    logging.getLogger("tvm_droplet_ms").setLevel(logging.INFO)
    # TVM's scheduler prints a table of all tasks after every batch.
    logging.getLogger("tvm.s_tir.meta_schedule").setLevel(logging.WARNING)

    spec = {"forward": {"image": nn.spec.Tensor(IMAGE_SHAPE, "float32")}}
    mod, params = SmallCNN().export_tvm(spec)
    arguments = random_arguments(params, args.seed)
    target = host_target()
    with tempfile.TemporaryDirectory() as temporary:
        tuned = relax.get_pipeline(
            "droplet_tuning",
            total_trials=args.trials,
            target=target,
            work_dir=args.work_dir or temporary,
            seed=args.seed,
        )(mod)

    machines = {
        name: relax.VirtualMachine(tvm.compile(module, target), tvm.cpu())
        for name, module in {"untuned": mod, "tuned": tuned}.items()
    }
    outputs = {name: vm["forward"](*arguments).numpy() for name, vm in machines.items()}
    # The sums are added up in another order, which float32 shows in its last digits.
    scale = np.abs(outputs["untuned"]).max()
    np.testing.assert_allclose(outputs["tuned"], outputs["untuned"], rtol=0, atol=1e-4 * scale)
    print("The outputs agree within 1e-4 of the largest.")
    compare_latency(machines, arguments)


if __name__ == "__main__":
    main()
