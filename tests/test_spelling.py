# SPDX-License-Identifier: Apache-2.0
"""Code and pages spell American English, as TVM's do."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (
    *("tvm_droplet_ms", "papers", "benchmarks", "docs"),
    *("examples", "tests", "training", "upstream"),
)

BRITISH = re.compile(
    # In pieces, so that this file passes.
    r"\w*(?:neighb"
    r"our|behavi"
    r"our|fav"
    r"our|col"
    r"our|cent"
    r"re[sd]?\b)\w*"
    r"|\w{2,}[a-z]is(?:e[ds]?|ing|ations?|ers?)\b",
    re.IGNORECASE,
)
FINE = re.compile(
    r"\w*(?:rais|nois|promis|precis|exercis|wis|madvis)(?:e[ds]?|ing|ers?)", re.IGNORECASE
)
"""Words that end so in America, too."""


@pytest.mark.parametrize("folder", FOLDERS)
def test_words_are_american(folder):
    files = [
        path for suffix in ("py", "md") for path in sorted((ROOT / folder).rglob(f"*.{suffix}"))
    ]
    assert files
    found = {
        f"{path.relative_to(ROOT)}: {word}"
        for path in files
        for word in BRITISH.findall(path.read_text())
        if not FINE.fullmatch(word)
    }
    assert not found
