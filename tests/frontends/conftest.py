# SPDX-License-Identifier: Apache-2.0
"""Lets the tests here import what tests of models and of tuning share."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
for folder in (TESTS / "model", TESTS / "tuning"):
    sys.path.insert(0, str(folder))
