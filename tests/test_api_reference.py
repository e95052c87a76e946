# SPDX-License-Identifier: Apache-2.0
"""The API reference builds from the docstrings, without a warning, and has every public name."""

import re
import subprocess
import sys
from pathlib import Path

import tvm_droplet_ms

API = Path(__file__).parents[1] / "docs" / "api"


def test_the_reference_has_the_public_names_with_their_parameters(tmp_path):
    pages = tmp_path / "pages"
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-d", str(tmp_path / "trees")]
    ended = subprocess.run(
        [*command, "-b", "text", str(API), str(pages)], capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    text = (pages / "index.txt").read_text()
    described = set(re.findall(r"tvm_droplet_ms\.(?:\w+\.)?(\w+)\(", text))
    assert set(tvm_droplet_ms.__all__) <= described
    # From the docstring of tune_kernel, as a reader sees it.
    assert re.search(
        r"\* \*\*patience\*\* \(.*\)\s+--?\s+Number\s+of\s+trials\s+without\s+a\s+gain", text
    )
