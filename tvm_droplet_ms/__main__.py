# SPDX-License-Identifier: Apache-2.0
"""``python -m tvm_droplet_ms``: the command line."""

import sys

from .cli import main

sys.exit(main())
