# SPDX-License-Identifier: Apache-2.0
"""Tune a kernel of one's own, export it to a shared library, and load the library.

    python examples/export_kernel.py --trials 64 --out dense_relu.so

The kernel is a dense layer with bias and ReLU, written in TVM's tensor expressions. A program that
loads the library needs TVM's runtime only.
"""

import argparse
import tempfile

import numpy as np

import tvm
from tvm import te
from tvm.s_tir import meta_schedule as ms
from tvm_droplet_ms import DropletStrategy
from tvm_droplet_ms.host import host_target
from tvm_droplet_ms.measure import fast_measure

ROWS, COLUMNS, INNER = 128, 256, 192


def dense_relu() -> tvm.tirx.PrimFunc:
    """max(data @ weight + bias, 0)."""
    data = te.placeholder((ROWS, INNER), name="data")
    weight = te.placeholder((INNER, COLUMNS), name="weight")
    bias = te.placeholder((COLUMNS,), name="bias")
    k = te.reduce_axis((0, INNER), name="k")
    shape = (ROWS, COLUMNS)
    dense = te.compute(shape, lambda i, j: te.sum(data[i, k] * weight[k, j], axis=k), name="dense")
    zero = tvm.tirx.const(0, "float32")
    relu = te.compute(shape, lambda i, j: te.max(dense[i, j] + bias[j], zero), name="relu")
    return te.create_prim_func([data, weight, bias, relu]).with_attr("global_symbol", "dense_relu")


def main() -> None:
    """Tune, export, load and check."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--work-dir", default=tempfile.mkdtemp())
    parser.add_argument("--out", default="dense_relu.so", help="the library to write")
    args = parser.parse_args()

    mod = tvm.IRModule({"dense_relu": dense_relu()})
    target = host_target()
    database = ms.tune_tir(
        mod,
        target,
        args.work_dir,
        max_trials_global=args.trials,
        strategy=DropletStrategy(),
        **fast_measure(target),
    )
    schedule = ms.tir_integration.compile_tir(database, mod, target)
    tvm.compile(schedule.mod, target=target).export_library(args.out)

    # In another program, this is all that is needed.
    kernel = tvm.runtime.load_module(args.out)["dense_relu"]
    rng = np.random.default_rng(0)
    shapes = [(ROWS, INNER), (INNER, COLUMNS), (COLUMNS,)]
    data, weight, bias = (rng.standard_normal(shape, dtype="float32") for shape in shapes)
    output = tvm.runtime.empty((ROWS, COLUMNS), "float32")
    kernel(*(tvm.runtime.tensor(array) for array in (data, weight, bias)), output)
    expected = np.maximum(data @ weight + bias, 0)
    np.testing.assert_allclose(output.numpy(), expected, rtol=1e-4, atol=1e-4)
    print(f"{args.out} computes what NumPy does.")


if __name__ == "__main__":
    main()
