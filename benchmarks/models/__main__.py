# SPDX-License-Identifier: Apache-2.0
"""``python -m benchmarks.models``."""

import sys

from .compare_models import main

sys.exit(main())
