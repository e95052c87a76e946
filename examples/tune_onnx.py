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
"""Tune an ONNX model's real topology for this machine's CPU.

The ``onnx`` package brings a few well-known networks without their weights ("light" models).
This program imports one into Relax, tunes it with the pipeline "droplet_tuning", checks the
tuned output against the untuned one, and prints the latency of both. With the default number of
trials, which reaches every task of SqueezeNet, it takes about a quarter of an hour on two cores.

    pip install '.[onnx]'
    python examples/tune_onnx.py --model squeezenet --trials 480 --work-dir tuning_logs

A second run with the same work directory goes on from the records of the first.

The light models fill every weight with one constant, so that all their outputs are equal,
whatever is computed. They get random weights here, seeded: the latency is the real one, the
predictions mean nothing.
"""

import argparse
import logging
import tempfile
from pathlib import Path

import numpy as np
import onnx

import tvm

# Importing the package registers its pipeline.
import tvm_droplet_ms  # noqa: F401
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx
from tvm_droplet_ms.host import host_target

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
MODELS = sorted(path.stem.removeprefix("light_") for path in FOLDER.glob("light_*.onnx"))


def fill_with_random_weights(model, seed):
    """Make the nodes that fill a weight with one constant give random values.

    Kernels and matrices are normal with variance 1 / fan-in, which keeps the activations' scale
    from layer to layer. Vectors lie in [0.5, 1.5], which suits a bias as it does a variance.
    The softmax at the end goes: it rounds most of some models' outputs to zero, where no
    comparison could find them wrong.
    """
    rng = np.random.default_rng(seed)
    shapes = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape":
            shape = shapes[node.input[0]]
            if len(shape) > 1:
                values = rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
            else:
                values = rng.uniform(0.5, 1.5, shape)
            tensor = onnx.numpy_helper.from_array(values.astype("float32"))
            node.CopyFrom(onnx.helper.make_node("Constant", [], node.output, value=tensor))
        elif node.op_type == "Softmax":
            node.CopyFrom(onnx.helper.make_node("Identity", node.input, node.output))


def compare_latency(machines, image, rounds=15):
    """Time the machines in turn, so that a change of the machine's speed meets all of them."""
    seconds = {name: [] for name in machines}
    for _ in range(rounds):
        for name, machine in machines.items():
            evaluate = machine.time_evaluator("main", tvm.cpu(), number=1, min_repeat_ms=50)
            seconds[name].append(evaluate(image).mean)
    for name, times in seconds.items():
        low, median, high = 1e3 * np.percentile(times, [10, 50, 90])
        print(f"{name:>8}: {median:9.3f} ms  (10th to 90th percentile {low:.3f} to {high:.3f})")


def main():
    """Import, tune, compile, check and time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="squeezenet")
    parser.add_argument("--trials", type=int, default=480, help="measurements in all")
    parser.add_argument("--work-dir", help="keep the records here (default: a temporary folder)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    logging.basicConfig(format="%(message)s")
    logging.getLogger("tvm_droplet_ms").setLevel(logging.INFO)
    # TVM's scheduler prints a table of all tasks after every batch.
    logging.getLogger("tvm.s_tir.meta_schedule").setLevel(logging.WARNING)

    model = onnx.load(FOLDER / f"light_{args.model}.onnx")
    fill_with_random_weights(model, args.seed)
    mod = from_onnx(model)
    (parameter,) = mod["main"].params
    shape = [int(extent) for extent in parameter.ty.shape]
    rng = np.random.default_rng(args.seed)
    image = tvm.runtime.tensor(rng.standard_normal(shape, dtype="float32"))
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
    outputs = {name: machine["main"](image).numpy() for name, machine in machines.items()}
    # The sums are added up in another order, which float32 shows in its last digits.
    scale = np.abs(outputs["untuned"]).max()
    np.testing.assert_allclose(outputs["tuned"], outputs["untuned"], rtol=0, atol=1e-4 * scale)
    print("The outputs agree within 1e-4 of the largest.")
    compare_latency(machines, image)


if __name__ == "__main__":
    main()
