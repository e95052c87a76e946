# SPDX-License-Identifier: Apache-2.0
"""Texts for nodes of the importer."""

from typing import Any


def shown(node: Any) -> str:
    """Describe a node for a message. Without a name, its first output identifies it."""
    if node.name:
        return f"node {node.name!r} ({node.op_type})"
    return f"the node that computes {next(iter(node.output), '')!r} ({node.op_type})"
