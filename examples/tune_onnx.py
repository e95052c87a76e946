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
"""Tune an ONNX model for the host CPU.

    pip install '.[onnx]'
    python examples/tune_onnx.py --model squeezenet --trials 480 --work-dir tuning_logs

The model is one of those that the ``onnx`` package brings without their weights. It is tuned by the
pipeline "droplet_tuning". 480 trials reach every kernel of SqueezeNet, in a quarter of an hour.
"""

import argparse
import logging
import tempfile
from pathlib import Path

import numpy as np
import onnx

import tvm
import tvm_droplet_ms  # noqa: F401  registers the pipeline "droplet_tuning"
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx
from tvm_droplet_ms.host import host_target

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
MODELS = sorted(path.stem.removeprefix("light_") for path in FOLDER.glob("light_*.onnx"))


def fill_weights(model: onnx.ModelProto) -> None:
    """Make constant weights random and drop the softmax, so that wrong outputs show."""
    rng = np.random.default_rng(0)
    shapes = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape":
            shape = shapes[node.input[0]]
            # A variance of 1 / fan-in keeps the scale from layer to layer; a vector is a bias or a
            # variance, which has to be positive.
            values = rng.uniform(0.5, 1.5, shape)
            if len(shape) > 1:
                values = rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
            tensor = onnx.numpy_helper.from_array(values.astype("float32"))
            node.CopyFrom(onnx.helper.make_node("Constant", [], node.output, value=tensor))
        elif node.op_type == "Softmax":
            node.CopyFrom(onnx.helper.make_node("Identity", node.input, node.output))


def main() -> None:
    """Import, tune, compile, check and time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="squeezenet")
    parser.add_argument("--trials", type=int, default=480, help="of all kernels together")
    parser.add_argument("--work-dir", default=tempfile.mkdtemp())
    args = parser.parse_args()
    logging.basicConfig(format="%(message)s")
    logging.getLogger("tvm_droplet_ms").setLevel(logging.INFO)

    model = onnx.load(FOLDER / f"light_{args.model}.onnx")
    fill_weights(model)
    mod = from_onnx(model)
    target = host_target()
    tune = relax.get_pipeline(
        "droplet_tuning", total_trials=args.trials, target=target, work_dir=args.work_dir
    )
    networks = {
        name: relax.VirtualMachine(tvm.compile(module, target), tvm.cpu())
        for name, module in {"untuned": mod, "tuned": tune(mod)}.items()
    }

    (parameter,) = mod["main"].params
    shape = [int(extent) for extent in parameter.ty.shape]
    rng = np.random.default_rng(0)
    image = tvm.runtime.tensor(rng.standard_normal(shape, dtype="float32"))
    outputs = {name: network["main"](image).numpy() for name, network in networks.items()}
    # The sums are added up in another order, which float32 shows in its last digits.
    tolerance = 1e-4 * np.abs(outputs["untuned"]).max()
    np.testing.assert_allclose(outputs["tuned"], outputs["untuned"], rtol=0, atol=tolerance)
    print("The outputs agree within 1e-4 of the largest.")
    for name, network in networks.items():
        timer = network.time_evaluator("main", tvm.cpu(), min_repeat_ms=50, repeat=5)
        print(f"{name}: {1e3 * timer(image).median:.2f} ms")


if __name__ == "__main__":
    main()
