# SPDX-License-Identifier: Apache-2.0
"""Tune an ONNX model for the host CPU, and time it beside ONNX Runtime if that is installed.

    pip install '.[onnx]' onnxruntime
    python examples/tune_onnx.py --model squeezenet --minutes 5 --work-dir tuning_logs

The model is one of those that the ``onnx`` package brings without weights. ``droplet-ms tune``
does the same with a file of yours.
"""

import argparse
import logging
import tempfile
from pathlib import Path

import numpy as np
import onnx

from tvm_droplet_ms import tune
from tvm_droplet_ms.tuning.summary import summary

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
    """Tune, check and time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="squeezenet")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--trials", type=int, help="of all kernels together")
    parser.add_argument("--work-dir", default=tempfile.mkdtemp())
    args = parser.parse_args()
    logging.basicConfig(format="%(message)s")
    logging.getLogger("tvm_droplet_ms.tuning").setLevel(logging.INFO)

    model = onnx.load(FOLDER / f"light_{args.model}.onnx")
    fill_weights(model)
    result = tune(
        model, time_budget_s=60 * args.minutes, trials=args.trials, work_dir=args.work_dir
    )
    print(summary(result, result.beside_reference()))


if __name__ == "__main__":
    main()
