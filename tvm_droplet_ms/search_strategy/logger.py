# SPDX-License-Identifier: Apache-2.0
"""The logger of the search strategy."""

import logging

logger = logging.getLogger("tvm_droplet_ms")
"""TVM's loggers of a task write to files only, and cannot be reached from Python."""
