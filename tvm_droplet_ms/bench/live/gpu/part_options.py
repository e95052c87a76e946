# SPDX-License-Identifier: Apache-2.0
"""The options that the parts of the GPU run share."""

import argparse
from pathlib import Path


def part_parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser with where rows and work go, and the target. ``doc``: the part's docstring."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--target", default="device")
    return parser
