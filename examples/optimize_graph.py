# SPDX-License-Identifier: Apache-2.0
"""Search for faster graphs of four small networks, and time them beside the prepared ones.

    python examples/optimize_graph.py --seconds 120 --work-dir graph_logs

Each is prepared as `tune` does it. What equal graphs need is timed, and the best are run beside it.
"""

import argparse
import math
import tempfile

import numpy as np

from tvm import relax
from tvm.relax.op import add, matmul, nn, tanh
from tvm_droplet_ms.model.prepare import prepare_graph
from tvm_droplet_papers.graph import optimize

random = np.random.default_rng(0)


def weight(*shape):
    """A random constant."""
    return relax.const(random.standard_normal(shape, "float32") / math.prod(shape[1:]) ** 0.5)


def network(shapes, body):
    """A module of one function of float32 tensors."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType(s, "float32")) for i, s in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(relax.Tuple([builder.emit(y) for y in body(*params)]))
        builder.emit_func_output(result)
    return builder.get()


def transition(x):
    """DenseNet: a 1x1 convolution, then a pool."""
    return [nn.avg_pool2d(nn.conv2d(x, weight(128, 256, 1, 1)), (2, 2), (2, 2))]


def repvgg(x):
    """RepVGG: a 3x3 and a 1x1 convolution and the identity, summed."""
    three, one = weight(64, 64, 3, 3), weight(64, 64, 1, 1)
    return [nn.relu(add(add(nn.conv2d(x, three, padding=1), nn.conv2d(x, one)), x))]


def steps(*inputs):
    """LSTM: 16 time steps whose inputs are multiplied by the same weight."""
    return [tanh(matmul(x, shared)) for shared in [weight(256, 1024)] for x in inputs]


def stage_end(x, residual):
    """ResNet v1: two 1x1 convolutions skip three of four pixels of what comes before them."""
    y = nn.relu(nn.conv2d(x, weight(64, 64, 3, 3), padding=1))
    y = nn.relu(add(nn.conv2d(y, weight(256, 64, 1, 1)), residual))
    return [nn.conv2d(y, weight(channels, 256, 1, 1), strides=2) for channels in (128, 512)]


IMAGES = [(1, 64, 56, 56), (1, 256, 56, 56)]
NETWORKS = {transition: IMAGES[1:], repvgg: IMAGES[:1], steps: [(1, 256)] * 16, stage_end: IMAGES}


def main() -> None:
    """Optimize the networks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120, help="for each network")
    parser.add_argument("--work-dir", default=tempfile.mkdtemp())
    parser.add_argument("--only", choices=[body.__name__ for body in NETWORKS])
    args = parser.parse_args()
    for body, shapes in NETWORKS.items():
        if args.only in (None, body.__name__):
            graph = prepare_graph()(network(shapes, body))
            result = optimize(graph, "auto", work_dir=args.work_dir, time_budget_s=args.seconds)
            (report,) = result.reports
            graphs = ("the input", report.measured.taken)
            before, after = (1e6 * report.measured.whole_secs(graph) for graph in graphs)
            print(f"{body.__name__}: {before:.0f} us before, {after:.0f} us after, ", end="")
            print(f"{before / after if after else 1:.2f}x\n{report}", flush=True)


if __name__ == "__main__":
    main()
