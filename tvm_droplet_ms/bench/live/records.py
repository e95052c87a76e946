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
"""The latencies of a live comparison as a small table, and the report that it gives.

    python -m tvm_droplet_ms.bench.live.records docs/data/live_three_seeds.csv --markdown

``compare --csv FILE`` writes such a file. It has a row for each run: layer, method, seed, the
re-measured latency at each checkpoint in microseconds (empty where there is none), and the seconds
of tuning.
"""

import argparse
import csv
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from .compare_report import Columns, ratio_report
from .comparison import LayerResults, Run
from .tables import format_table

_LATENCY = "us_at_"


def write_records(
    path: Path, layers: Mapping[str, LayerResults], checkpoints: Sequence[int]
) -> None:
    """Write the latencies and the seconds of all runs."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        latencies = [f"{_LATENCY}{checkpoint}" for checkpoint in checkpoints]
        writer.writerow(["layer", "method", "seed", *latencies, "seconds"])
        for name, results in layers.items():
            for (method, seed), run in results.runs.items():
                secs = [results.latency(method, seed, checkpoint) for checkpoint in checkpoints]
                cells = ["" if latency is None else f"{1e6 * latency:.1f}" for latency in secs]
                writer.writerow([name, method, seed, *cells, f"{run.wall_secs:.0f}"])


def read_records(path: Path) -> tuple[dict[str, LayerResults], list[int]]:
    """Read the layers and the checkpoints written by ``write_records``."""
    layers: dict[str, LayerResults] = {}
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        names = [name for name in reader.fieldnames or () if name.startswith(_LATENCY)]
        checkpoints = [int(name.removeprefix(_LATENCY)) for name in names]
        for row in reader:
            results = layers.setdefault(row["layer"], LayerResults())
            method, seed = row["method"], int(row["seed"])
            results.runs[method, seed] = Run([], float(row["seconds"]), 0.0, "")
            for name, checkpoint in zip(names, checkpoints, strict=True):
                if row[name]:
                    secs = 1e-6 * float(row[name])
                    kernel = {"error": None, "median": secs, "quartiles": [secs, secs]}
                    results.kernels[method, seed, checkpoint] = kernel
    return layers, checkpoints


def report(
    layers: Mapping[str, LayerResults], checkpoints: Sequence[int], baseline: str, markdown: bool
) -> str:
    """The ratios to a baseline, and the seconds of each method's runs together."""
    keys = [key for results in layers.values() for key in results.runs]
    methods = list(dict.fromkeys(method for method, _ in keys))
    seeds = sorted({seed for _, seed in keys})
    columns = Columns(baseline, methods, seeds, checkpoints, markdown)
    rows = []
    for method in methods:
        secs = [
            run.wall_secs
            for results in layers.values()
            for (name, _), run in results.runs.items()
            if name == method
        ]
        rows.append([method, str(len(secs)), f"{sum(secs):.0f}"])
    seconds = format_table(["method", "runs", "seconds of tuning"], rows, markdown)
    return f"{ratio_report(layers, columns)}\n\n{seconds}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the report of a file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--baseline", default="evolutionary", help="default: %(default)s")
    parser.add_argument("--without", nargs="+", default=[], help="layers to leave out")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    args = parser.parse_args(arguments)
    layers, checkpoints = read_records(args.file)
    layers = {name: results for name, results in layers.items() if name not in args.without}
    print(report(layers, checkpoints, args.baseline, args.markdown))
    return 0


if __name__ == "__main__":
    sys.exit(main())
