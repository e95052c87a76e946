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
"""Search for faster graphs of four small networks, and time them beside the prepared ones.

    python examples/optimize_graph.py --seconds 120 --work-dir graph_logs

Each is prepared as `tune` does it. Then `graph.optimize` times the kernels that equal graphs would
need, and runs the best graphs beside the prepared one. It takes at most 120 s for each.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

from tvm import relax
from tvm_droplet_ms.graph import optimize
from tvm_droplet_ms.model.prepare import prepare_graph

op = relax.op
random = np.random.default_rng(0)


def weight(*shape):
    """A random constant."""
    return relax.const((random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype("f4"))


def function(shapes, body):
    """A module of one function of float32 tensors."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType(s, "float32")) for i, s in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            outputs = [builder.emit(each) for each in body(*params)]
            result = builder.emit_output(relax.Tuple(outputs))
        builder.emit_func_output(result)
    return builder.get()


def transition():
    """DenseNet: a 1x1 convolution, then a pool."""
    y = lambda x: op.nn.conv2d(x, weight(128, 256, 1, 1))  # noqa: E731
    return function([(1, 256, 56, 56)], lambda x: [op.nn.avg_pool2d(y(x), (2, 2), (2, 2))])


def repvgg():
    """RepVGG: a 3x3 and a 1x1 convolution and the identity, summed."""

    def body(x):
        three = op.nn.conv2d(x, weight(64, 64, 3, 3), padding=1)
        one = op.nn.conv2d(x, weight(64, 64, 1, 1))
        return [op.nn.relu(op.add(op.add(three, one), x))]

    return function([(1, 64, 56, 56)], body)


def steps():
    """LSTM: 16 time steps whose inputs are multiplied by the same weight."""
    shared = weight(256, 1024)
    return function([(1, 256)] * 16, lambda *xs: [op.tanh(op.matmul(x, shared)) for x in xs])


def stage_end():
    """ResNet v1: two 1x1 convolutions skip three of four pixels of what comes before them."""

    def body(x, residual):
        y = op.nn.relu(op.nn.conv2d(x, weight(64, 64, 3, 3), padding=1))
        y = op.nn.conv2d(y, weight(256, 64, 1, 1))
        y = op.nn.relu(op.add(y, residual))
        return [op.nn.conv2d(y, weight(k, 256, 1, 1), strides=2) for k in (128, 512)]

    return function([(1, 64, 56, 56), (1, 256, 56, 56)], body)


def main() -> None:
    """Optimize all four."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120, help="for each network")
    parser.add_argument("--work-dir", type=Path, default=tempfile.mkdtemp())
    parser.add_argument("--only", choices=["transition", "repvgg", "steps", "stage_end"])
    parser.add_argument("--verbose", action="store_true", help="print the whole report")
    args = parser.parse_args()
    for make in (transition, repvgg, steps, stage_end):
        if args.only in (None, make.__name__):
            graph = prepare_graph()(make())
            options = {"work_dir": args.work_dir, "time_budget_s": args.seconds}
            (report,) = optimize(graph, "auto", **options).reports
            before = report.measured.whole_secs("the input")
            after = report.measured.whole_secs(report.measured.taken)
            print(f"{make.__name__}: {report.measured.taken} taken, ", end="")
            print(f"{before * 1e6:.0f} us before, {after * 1e6:.0f} us after, ", end="")
            print(f"{before / after if after else 1:.2f} times as fast", flush=True)
            if args.verbose:
                print(report)


if __name__ == "__main__":
    main()
