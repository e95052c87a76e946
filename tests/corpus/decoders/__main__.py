# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.corpus.decoders``: measures, or prints what was measured."""

import argparse
import itertools
import json
from pathlib import Path

from . import products, steps
from .report import tables

STEPS = [
    ("Llama", "20M", 256, 1, "float32"),
    ("Llama", "20M", 4096, 1, "float32"),
    ("Llama", "20M", 256, 1, "bfloat16"),
    ("Llama", "20M", 256, 128, "float32"),
    ("Qwen2", "20M", 1024, 1, "float32"),
    ("Llama", "110M", 256, 1, "float32"),
    ("Llama", "110M", 4096, 1, "float32"),
    ("Llama", "110M", 256, 1, "bfloat16"),
]
PRODUCTS = [(1, 2048), (1, 4096), (4, 2048), (128, 2048)]


def main() -> None:
    """Measure, a row as JSON a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=0, help="0 for first picks")
    parser.add_argument("--report", action="store_true", help="print the tables")
    parser.add_argument("--only", choices=("steps", "prompts", "products"))
    args = parser.parse_args()
    if args.report:
        print(tables(map(json.loads, args.out.read_text().splitlines())))
        return
    with args.out.open("a") as file:
        chosen = [] if args.only == "products" else STEPS
        for kind, size, length, tokens, precision in chosen:
            if args.only == "prompts" and tokens == 1:
                continue
            row = steps.measure(
                kind, size, length, tokens, minutes=args.minutes, precision=precision
            )
            print(json.dumps(row), file=file, flush=True)
        choices = (
            itertools.product(PRODUCTS, (4, 8), (0, 4)) if args.only in (None, "products") else ()
        )
        for (count, extent), bits, level in choices:
            row = products.measure(count, extent, bits, level)
            print(json.dumps(row), file=file, flush=True)


if __name__ == "__main__":
    main()
