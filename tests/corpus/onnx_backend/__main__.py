# SPDX-License-Identifier: Apache-2.0
"""Run ONNX's backend tests: ``python -m tests.corpus.onnx_backend [--only PART] [--out FILE]``."""

import argparse
import json
import sys
import time
from pathlib import Path

from .cases import load_cases
from .running import PASSED, Outcome, run_cases
from .table import table


def main() -> None:
    """Run the cases that are asked for, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.corpus.onnx_backend", description=__doc__
    )
    parser.add_argument("--only", default="", metavar="PART", help="cases whose name has PART")
    parser.add_argument("--operator", default="", metavar="NAME", help="cases of an operator")
    parser.add_argument("--again", metavar="FILE", help="cases that are not right in a FILE.json")
    parser.add_argument("--workers", type=int, default=2, help="processes at a time")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write FILE.md and FILE.json")
    parser.add_argument("--verbose", action="store_true", help="tell each case as it ends")
    arguments = parser.parse_args()
    start = time.perf_counter()
    cases = load_cases()
    names = [name for name in cases if arguments.only in name]
    if arguments.operator:
        wanted = set(arguments.operator.split(","))
        names = [name for name in names if cases[name].operator in wanted]
    if arguments.again:
        before = [Outcome(*row) for row in json.loads(Path(arguments.again).read_text())]
        wrong = {each.name for each in before if each.counts and each.status != PASSED}
        names = [name for name in names if name in wrong]
    outcomes = []
    for outcome in run_cases(names, arguments.workers):
        outcomes.append(outcome)
        if arguments.verbose:
            text = f"{len(outcomes)}/{len(names)} {outcome.name}: {outcome.status}"
            print(f"{text}: {outcome.detail} ({outcome.secs:.1f} s)", file=sys.stderr, flush=True)
    outcomes.sort()
    text = table(outcomes)
    print(text)
    print(f"{len(outcomes)} cases in {time.perf_counter() - start:.0f} s")
    if arguments.out:
        arguments.out.with_suffix(".md").write_text(text)
        arguments.out.with_suffix(".json").write_text(json.dumps(outcomes, indent=0))


if __name__ == "__main__":
    main()
