# SPDX-License-Identifier: Apache-2.0
"""Nodes and errors of the importer in words."""

import re
from typing import Any

_OPERATOR = re.compile(r'ir\.Op\(.*?name="([\w.]+)".*?support_level=\d+\)')
"""An operator as TVM writes it in messages, in half a kilobyte."""


def shown(node: Any) -> str:
    """A node in words. One without a name goes by its output."""
    if node.name:
        return f"node {node.name!r} ({node.op_type})"
    return f"the node that computes {next(iter(node.output), '')!r} ({node.op_type})"


def last_line(error: Exception) -> str:
    """The last line of a message: TVM's begin with a traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return _OPERATOR.sub(r"\1", (lines or [type(error).__name__])[-1])[:300]
