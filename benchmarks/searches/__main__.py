# SPDX-License-Identifier: Apache-2.0
"""``python -m benchmarks.searches``."""

import sys

from .compare_searches import main

sys.exit(main())
