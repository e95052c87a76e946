# SPDX-License-Identifier: Apache-2.0
"""Texts for nodes and errors of the importer."""

import re
from typing import Any

_OPERATOR = re.compile(r'ir\.Op\(.*?name="([\w.]+)".*?support_level=\d+\)')
"""Matches TVM's text for an operator in messages, which is half a kilobyte long."""


def shown(node: Any) -> str:
    """Describe a node for a message. Without a name, its first output identifies it."""
    if node.name:
        return f"node {node.name!r} ({node.op_type})"
    return f"the node that computes {next(iter(node.output), '')!r} ({node.op_type})"


def last_line(error: Exception) -> str:
    """The last line of an error message. TVM's messages begin with a traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return _OPERATOR.sub(r"\1", (lines or [type(error).__name__])[-1])[:300]
