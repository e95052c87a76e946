# SPDX-License-Identifier: Apache-2.0
"""The logger of the search strategy."""

import logging

logger = logging.getLogger("tvm_droplet_ms")
"""The package's logger. TVM's task loggers only write to files, and Python cannot access them."""
