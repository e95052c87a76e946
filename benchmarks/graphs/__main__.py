# SPDX-License-Identifier: Apache-2.0
"""``python -m benchmarks.graphs``."""

import sys

from .compare_graphs import main

sys.exit(main())
