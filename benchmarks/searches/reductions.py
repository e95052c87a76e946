# SPDX-License-Identifier: Apache-2.0
"""Time kernels that reduce contiguous numbers, before and after tuning.

python -m benchmarks.searches.reductions --trials 48 --seeds 0 1
"""

import argparse
from collections.abc import Callable, Sequence

import numpy as np

import tvm
from tvm import te, topi
from tvm.target import Target
from tvm_droplet_ms import tune_kernel
from tvm_droplet_ms.host import host_target
from tvm_droplet_ms.measure import build_scheduled

Tensors = list[te.Tensor]


def sums() -> Tensors:
    """Sums of 197 rows of 768."""
    x = te.placeholder((197, 768), name="x")
    return [x, topi.sum(x, 1)]


def maxima() -> Tensors:
    """Maxima of 101 rows of 257."""
    x = te.placeholder((101, 257), name="x")
    return [x, topi.max(x, 1)]


def products() -> Tensors:
    """A matrix of 1024x1024 times a vector."""
    x, v = te.placeholder((1024, 1024), name="x"), te.placeholder((1024,), name="v")
    k = te.reduce_axis((0, 1024), "k")
    return [x, v, te.compute((1024,), lambda i: te.sum(x[i, k] * v[k], k), "y")]


def softmax() -> Tensors:
    """The softmax of 197 rows of 197."""
    x = te.placeholder((197, 197), name="x")
    return [x, topi.nn.fast_softmax(x)]


def layer_norm() -> Tensors:
    """The layer norm of 197 rows of 257."""
    x = te.placeholder((197, 257), name="x")
    scale, shift = (te.placeholder((257,), name=name) for name in ("scale", "shift"))
    return [x, scale, shift, topi.nn.layer_norm(x, scale, shift, [1])]


KERNELS: Sequence[Callable[[], Tensors]] = (sums, maxima, products, softmax, layer_norm)


def microseconds(mod: tvm.IRModule, tensors: Tensors, target: Target) -> float:
    """The median time of a scheduled module in microseconds."""
    shapes = [[int(extent) for extent in tensor.shape] for tensor in tensors]
    generator = np.random.default_rng(0)
    arrays = [tvm.runtime.tensor(generator.random(shape, dtype=np.float32)) for shape in shapes]
    built = build_scheduled(mod, target)
    timer = built.time_evaluator("main", tvm.cpu(), number=50, repeat=9)
    return float(np.median(timer(*arrays).results)) * 1e6


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row for each kernel."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--trials", type=int, default=48)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    args = parser.parse_args(arguments)
    target = host_target()
    print("| kernel | unscheduled, us | tuned, us |\n| --- | ---: | ---: |")
    for make in KERNELS:
        tensors = make()
        function = te.create_prim_func(tensors)
        before = microseconds(tvm.IRModule({"main": function}), tensors, target)
        tuned = [
            microseconds(
                tune_kernel(function, trials=args.trials, seed=seed, progress=None).mod,
                tensors,
                target,
            )
            for seed in args.seeds
        ]
        times = "; ".join(f"{each:.2f}" for each in tuned)
        print(f"| {(make.__doc__ or '').rstrip('.')} | {before:.1f} | {times} |", flush=True)


if __name__ == "__main__":
    main()
