# SPDX-License-Identifier: Apache-2.0
"""Tune single kernels in matrix tiles with DropletStrategy and TVM's evolution, and compare them.

python -m benchmarks.searches.matrix_tiles --trials 32 --seeds 0

Both searches start from the same prior, and have the same design spaces, builder, runner and
trials. Then their kernels are timed in turns. The peak is that of products of tiles without loads.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from statistics import geometric_mean, median

import numpy as np

import tvm
from tvm import te, tirx
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.script import tirx as T
from tvm_droplet_ms.design_space.sound_space import sound_space
from tvm_droplet_ms.host import host_target
from tvm_droplet_ms.measure import build_scheduled, fast_measure
from tvm_droplet_ms.model.kernels.halves import half_convolution

from .methods import METHODS

HALF, BYTES = "bfloat16", "uint8"

CONVOLUTIONS = {
    "3x3, 56x56x64": (56, 64, 64, 3),
    "3x3, 28x28x128": (28, 128, 128, 3),
    "3x3, 14x14x256": (14, 256, 256, 3),
    "3x3, 7x7x512": (7, 512, 512, 3),
    "1x1, 28x28x256 to 512": (28, 256, 512, 1),
}
"""Extent of the map, inputs, outputs, and extent of the kernel."""

PRODUCTS = (512, 1024)

COMPARED = ("evolutionary with prior", "droplet")

REPEATS, TURNS, PRODUCTS_AT_ONCE = 50, 9, 1000


def kernels(dtype: str) -> dict[str, tuple[tirx.PrimFunc, int]]:
    """Return the kernels of a type of activations, and their operations."""
    own, sums = ("int8", "int32") if dtype == BYTES else (HALF, "float32")
    found: dict[str, tuple[tirx.PrimFunc, int]] = {}
    for name, (extent, inputs, outputs, taps) in CONVOLUTIONS.items():
        images = te.placeholder((1, extent, extent, inputs), dtype, name="images")
        weights = te.placeholder((taps, taps, inputs, outputs), own, name="weights")
        border = [taps // 2] * 4
        result = half_convolution(images, weights, [1, 1], border, [1, 1])
        work = 2 * extent * extent * inputs * outputs * taps * taps
        found[name] = _packable(images, weights, result), work
    for size in PRODUCTS:
        found[f"product of {size}"] = _product(size, dtype, own, sums), 2 * size**3
    return found


def _product(size: int, dtype: str, own: str, sums: str) -> tirx.PrimFunc:
    a = te.placeholder((size, size), dtype, name="a")
    b = te.placeholder((size, size), own, name="b")
    k = te.reduce_axis((0, size), "k")
    product = te.compute(
        (size, size), lambda i, j: te.sum(a[i, k].astype(sums) * b[k, j].astype(sums), k), "product"
    )
    return _packable(a, b, product)


def _packable(*tensors: te.Tensor) -> tirx.PrimFunc:
    """Make a kernel whose second tensor is packed when a model is compiled."""
    function = te.create_prim_func(tensors).with_attr("layout_free_buffers", [1])
    return function.with_attr("global_symbol", "main")


def peak(dtype: str) -> float:
    """Return the operations per second of products of tiles, without loads and stores."""
    multiply = f"llvm.x86.{'tdpbf16ps' if dtype == HALF else 'tdpbusd'}"

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def products(layout: T.Buffer((64,), "uint8")):  # type: ignore[no-untyped-def, valid-type]
        T.func_attr({"global_symbol": "main"})
        T.evaluate(T.call_extern("int64", "syscall", T.int64(158), T.int64(0x1023), T.int64(18)))
        T.evaluate(T.call_llvm_intrin("void", "llvm.x86.ldtilecfg", T.address_of(layout[0])))
        for _ in range(PRODUCTS_AT_ONCE):
            T.evaluate(T.call_llvm_intrin("void", multiply, T.uint8(0), T.uint8(4), T.uint8(6)))
            T.evaluate(T.call_llvm_intrin("void", multiply, T.uint8(1), T.uint8(4), T.uint8(7)))
            T.evaluate(T.call_llvm_intrin("void", multiply, T.uint8(2), T.uint8(5), T.uint8(6)))
            T.evaluate(T.call_llvm_intrin("void", multiply, T.uint8(3), T.uint8(5), T.uint8(7)))
        T.evaluate(T.call_llvm_intrin("void", "llvm.x86.tilerelease"))

    built = tirx.build(tvm.IRModule({"main": products}), target=host_target())
    layout = np.zeros(64, "uint8")
    layout[0], layout[16:32:2], layout[48:56] = 1, 64, 16
    timer = built.time_evaluator("main", tvm.cpu(), number=REPEATS, repeat=TURNS)
    secs = float(min(timer(tvm.runtime.tensor(layout)).results))
    of_one = 2 * 16 * 16 * (32 if dtype == HALF else 64)
    return 4 * PRODUCTS_AT_ONCE * of_one / secs


def tuned(
    function: tirx.PrimFunc, method: str, args: argparse.Namespace, seed: int
) -> tuple[tvm.IRModule, float]:
    """Tune a kernel; return its scheduled module and the seconds of wall-clock time."""
    target, mod = host_target(), tvm.IRModule({"main": function})
    given = {"prior": args.prior, "known": args.known}
    files = {name: given[name] for name in METHODS[method].takes if given.get(name)}
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        database = ms.tune_tir(
            mod,
            target,
            folder,
            max_trials_global=args.trials,
            num_trials_per_iter=16,
            cost_model=METHODS[method].cost_model(target, **files),
            space=sound_space("post-order-apply", mod, target),
            strategy=METHODS[method].strategy(**files),
            seed=seed,
            **fast_measure(target),
        )
        wall = time.perf_counter() - began
        record = database.query_tuning_record(mod, target, "main")
        schedule = Schedule(mod)
        record.trace.apply_to_schedule(schedule, remove_postproc=False)
    return schedule.mod, wall


def seconds(mods: Sequence[tvm.IRModule]) -> list[float]:
    """Return the median seconds of scheduled modules that are timed in turns."""
    target = host_target()
    built = [build_scheduled(mod, target) for mod in mods]
    arrays = [
        [tvm.runtime.empty([int(n) for n in info.shape], str(info.dtype)) for info in infos]
        for infos in (ArgInfo.from_entry_func(mod, remove_preproc=True) for mod in mods)
    ]
    times: list[list[float]] = [[] for _ in mods]
    for _ in range(TURNS):
        for each, one, given in zip(times, built, arrays, strict=True):
            timer = one.time_evaluator("main", tvm.cpu(), number=REPEATS, repeat=1)
            each.append(float(timer(*given).results[0]))
    return [median(each) for each in times]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row for each kernel and seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--prior", help="prior that has not seen the kernels")
    parser.add_argument("--known", help="known schedules of other kernels")
    args = parser.parse_args(arguments)
    print(
        "| kernel | evolution, us | droplet, us | gain "
        "| seconds, droplet over evolution | share of the peak |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    gains: list[float] = []
    for dtype in (HALF, BYTES):
        for name, (function, work) in kernels(dtype).items():
            for seed in args.seeds:
                (one, before), (other, after) = (
                    tuned(function, method, args, seed) for method in COMPARED
                )
                evolution, droplet = seconds([one, other])
                gains.append(evolution / droplet)
                share = work / droplet / peak(dtype)
                print(
                    f"| {name}, {dtype} | {1e6 * evolution:.1f} | {1e6 * droplet:.1f} "
                    f"| {gains[-1]:.2f} | {after / before:.2f} | {share:.2f} |",
                    flush=True,
                )
    print(f"Geometric mean of the gains: {geometric_mean(gains):.2f}")


if __name__ == "__main__":
    main()
