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
"""Search graphs by rooflines of a made-up machine, to compare ways to search. Nothing is measured.

    python -m tvm_droplet_ms.bench.graph_search --out graph_search.jsonl --models lstm --markdown

The first table is about extraction: what the saturated e-graph of each model costs by the integer
program and by the greedy baselines. The second one is about search under limits of e-nodes:
saturation to the limit (as TENSAT does it), single graphs with backtracking (TASO), random rules,
and the tree search. The latter two price as many states. ``--methods`` has the tree search with
other extractions and without each of its switches, too. Costs are shares of the input's, which is
the graph after the fixed preparation.

Each line of ``--out`` is a finished search, which is not repeated.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .graph_models import MODELS
from .graph_search_report import extraction_table, search_table
from .graph_search_run import MAIN_METHODS, METHODS, Searched

LIMITS = (250, 500, 1000, 2000)


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=Path("graph_search.jsonl"))
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(MAIN_METHODS))
    parser.add_argument("--limits", nargs="+", type=int, default=list(LIMITS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--states", type=int, default=64, help="states that a search prices")
    parser.add_argument("--report", action="store_true", help="search nothing, print the tables")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run missing searches and print the tables."""
    args = parse_arguments(arguments)
    done = read(args.out)
    for model in () if args.report else args.models:
        searched: Searched | None = None
        for limit in args.limits:
            for method in args.methods:
                # What is not random needs no second seed.
                for seed in args.seeds if METHODS[method].is_random else args.seeds[:1]:
                    task = {"model": model, "limit": limit, "method": method, "seed": seed}
                    task |= {"states": args.states}
                    if any(task.items() <= line.items() for line in done):
                        continue
                    searched = searched or Searched(MODELS[model].make())
                    line = {**task, **searched.run(method, limit, seed, args.states)}
                    done.append(line)
                    with args.out.open("a") as file:
                        file.write(json.dumps(line) + "\n")
                    print(json.dumps(line), flush=True)
    print("\n" + extraction_table(done, args.markdown))
    print("\n" + search_table(done, args.markdown))
    return 0


def read(path: Path) -> list[dict[str, Any]]:
    """The finished searches of a file; a line that was torn by a stop is left out."""
    lines: list[dict[str, Any]] = []
    for text in path.read_text().splitlines() if path.exists() else ():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            print(f"{path}: a torn line is searched anew: {text[:60]}", file=sys.stderr)
    return lines


if __name__ == "__main__":
    sys.exit(main())
