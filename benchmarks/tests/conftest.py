# SPDX-License-Identifier: Apache-2.0
"""Small models and benches without measurements are shared with the tests of graphs."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "papers" / "tests" / "graph"))
