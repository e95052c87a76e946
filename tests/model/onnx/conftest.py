# SPDX-License-Identifier: Apache-2.0
"""Lets the tests here import what tests of models share."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
