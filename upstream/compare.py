# SPDX-License-Identifier: Apache-2.0
"""The published search beside TVM's evolution and its ``post_optimization``, at the same trials.

``TVM_NUM_THREADS=1 python upstream/compare.py run`` tunes each layer with each seed, and adds a
line to ``docs/upstream/droplet.jsonl`` for each pair; pairs that have a line are left out, so that
it goes on where it was stopped. ``python upstream/compare.py table`` writes the table of those
lines into ``docs/upstream/droplet.md``. Run it on an idle machine.
"""

import argparse
import json
import platform
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import numpy as np

import tvm
from tvm import te
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.post_optimization import PostOpt
from tvm.s_tir.meta_schedule.post_optimization.space import Space
from tvm.s_tir.meta_schedule.runner import EvaluatorConfig
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm_droplet_ms import DropletStrategy
from tvm_droplet_ms.host import host_target
from tvm_droplet_ms.measure import fast_measure

sys.path.append(str(Path(__file__).resolve().parents[1]))  # `benchmarks` is not installed.

DOCS = Path(__file__).resolve().parent.parent / "docs" / "upstream"
DROPLET, POST_OPTIMIZATION, EVOLUTION = "droplet", "post_optimization", "evolutionary"
ROUNDS = 15
"""Times of each winner, taken in turns."""

LAYERS: Mapping[str, Callable[[], Any]] = {
    "matmul 512": lambda: te_workload.matmul(512, 512, 512),
    "conv 3x3 56x56x64": lambda: te_workload.conv2d_nhwc(1, 56, 56, 64, 64, 3, 1, 1),
    "conv 1x1 28x28x256": lambda: te_workload.conv2d_nhwc(1, 28, 28, 256, 128, 1),
    "depthwise 112x112x32": lambda: te_workload.depthwise_conv2d_nhwc(1, 112, 112, 32, 3, 1, 1),
    "batch matmul 12x128x64": lambda: te_workload.batch_matmul_nkkm(12, 128, 128, 64),
    "norm 256x256": lambda: te_workload.norm_bmn(1, 256, 256),
}

EVALUATOR = EvaluatorConfig(number=2, repeat=3, min_repeat_ms=20)
"""Three times of each candidate: what the significance test needs."""


def main() -> None:
    """Run the comparison, or write its table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=["run", "table"])
    parser.add_argument("--layers", nargs="+", default=list(LAYERS), choices=list(LAYERS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--data", type=Path, default=DOCS / "droplet.jsonl")
    arguments = parser.parse_args()
    if arguments.command == "table":
        write_table(DOCS / "droplet.md", read(arguments.data))
        return
    done = {(line["layer"], line["seed"], line["trials"]) for line in read(arguments.data)}
    for seed in range(1, arguments.seeds + 1):
        for layer in arguments.layers:
            if (layer, seed, arguments.trials) not in done:
                line = compare(layer, seed, arguments.trials)
                with arguments.data.open("a") as out:
                    out.write(json.dumps(line) + "\n")
                print(line)


def compare(layer: str, seed: int, trials: int) -> dict[str, Any]:
    """Tune a layer by each method, and time the winners in turns."""
    mod = tvm.IRModule({"main": te.create_prim_func(LAYERS[layer]())})
    target = tvm.target.Target({**host_target().export(), "num-cores": 1})
    winners, errors, measured = {}, {}, {}
    for method in (EVOLUTION, POST_OPTIMIZATION, DROPLET):
        with tempfile.TemporaryDirectory() as folder:
            try:
                tune(method, mod, target, folder, trials, seed)
            # It fails in many ways: the layer is then what evolution had found before it.
            except Exception as error:
                if method != POST_OPTIMIZATION:
                    raise
                errors[method] = f"{type(error).__name__}: {error}"[:200]
            database = ms.database.JSONDatabase(work_dir=folder)
            measured[method] = len(database.get_all_tuning_records())
            winners[method] = build(database, mod, target)
    return {
        "layer": layer,
        "seed": seed,
        "trials": trials,
        "microseconds": time_in_turns(winners, mod),
        "records": measured,
        "errors": errors,
        "machine": f"{_cpu()}, one core",
        "tvm": tvm.__version__,
        "date": date.today().isoformat(),
    }


def tune(
    method: str, mod: tvm.IRModule, target: tvm.target.Target, folder: str, trials: int, seed: int
) -> None:
    """Tune into a folder. Half of the trials explore; ``post_optimization`` has the other half."""
    ms.tune_tir(
        mod,
        target,
        folder,
        max_trials_global=trials // 2 if method == POST_OPTIMIZATION else trials,
        strategy=DropletStrategy.published() if method == DROPLET else "evolutionary",
        num_tuning_cores=1,
        seed=seed,
        **fast_measure(target, max_workers=1, evaluator_config=EVALUATOR),
    )
    if method == POST_OPTIMIZATION:
        # As shipped, its builds end after 10 s, less than a build process needs to import TVM.
        Space.run.__defaults__ = (120, *Space.run.__defaults__[1:])
        PostOpt(folder, target, trials - trials // 2).run()


def build(database: ms.database.Database, mod: tvm.IRModule, target: tvm.target.Target) -> Any:
    """The kernel of the best record."""
    schedule = ms.tir_integration.compile_tir(database, mod, target)
    if schedule is None:
        raise RuntimeError("no candidate was measured with success")
    return tvm.compile(schedule.mod, target=target).jit()


def time_in_turns(kernels: Mapping[str, Any], mod: tvm.IRModule) -> dict[str, float]:
    """The median time of each kernel in microseconds, on the same arguments."""
    device = tvm.cpu()
    generator = np.random.default_rng(0)
    arguments = [
        tvm.runtime.tensor(generator.random([int(n) for n in one.shape], dtype=one.dtype), device)
        for one in ms.arg_info.ArgInfo.from_entry_func(mod)
    ]
    secs: dict[str, list[float]] = {name: [] for name in kernels}
    for _ in range(ROUNDS):
        for name, kernel in kernels.items():
            evaluator = kernel.time_evaluator("main", device, number=1, min_repeat_ms=20)
            secs[name].append(float(evaluator(*arguments).mean))
    return {name: round(median(times) * 1e6, 2) for name, times in secs.items()}


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a data file; none before there is one."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def write_table(page: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Write the table between the two marks of a page."""
    head, _, rest = page.read_text().partition("<!-- table -->\n")
    _, _, tail = rest.partition("<!-- end of table -->\n")
    page.write_text(f"{head}<!-- table -->\n{table(list(lines))}<!-- end of table -->\n{tail}")


def table(lines: list[Mapping[str, Any]]) -> str:
    """The tables of each number of trials, the smallest first."""
    if not lines:
        return "Not measured yet.\n"
    counts = sorted({line["trials"] for line in lines})
    return "\n".join(_table([line for line in lines if line["trials"] == one]) for one in counts)


def _table(lines: list[Mapping[str, Any]]) -> str:
    """Geometric means over the seeds, and the speed of the published search against the others."""
    others = (EVOLUTION, POST_OPTIMIZATION)
    methods = (*others, DROPLET)
    columns = ["layer", "seeds", *(f"{method}, us" for method in methods)]
    columns += [f"against {other} (range)" for other in others]
    rows = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    ratios: dict[str, dict[str, list[float]]] = {other: {} for other in others}
    for layer in dict.fromkeys(line["layer"] for line in lines):
        times = [line["microseconds"] for line in lines if line["layer"] == layer]
        cells = [layer, str(len(times))]
        cells += [f"{geometric_mean(one[method] for one in times):.4g}" for method in methods]
        for other in others:
            ratios[other][layer] = [one[other] / one[DROPLET] for one in times]
            cells.append(_spread(ratios[other][layer]))
        rows.append(f"| {' | '.join(cells)} |")
    what = {f"{line['trials']} trials, {line['machine']}, {line['date']}" for line in lines}
    return "\n".join([*rows, "", *summary(ratios), "", f"{'; '.join(sorted(what))}.", ""])


def summary(ratios: Mapping[str, Mapping[str, list[float]]]) -> list[str]:
    """A table of the speed against each method, over all layers and seeds."""
    from benchmarks.searches.comparison import interval

    rows = [
        f"| {DROPLET} against | geometric mean | 95% interval | median | worst | best | ahead |",
        "|---|---|---|---|---|---|---|",
    ]
    for other, of_layers in ratios.items():
        everything = [ratio for of_layer in of_layers.values() for ratio in of_layer]
        low, high = interval(of_layers)
        rows.append(
            f"| {other} | {geometric_mean(everything):.2f} | {low:.2f} to {high:.2f} "
            f"| {median(everything):.2f} | {min(everything):.2f} | {max(everything):.2f} "
            f"| {sum(ratio > 1 for ratio in everything)} of {len(everything)} |"
        )
    return rows


def _spread(ratios: list[float]) -> str:
    """The geometric mean, with the least and the largest."""
    return f"{geometric_mean(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


if __name__ == "__main__":
    main()
