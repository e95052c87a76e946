# SPDX-License-Identifier: Apache-2.0
"""Converters of operators outside the standard ONNX domain."""

from typing import Any

from . import classical, contrib

OTHER_DOMAINS = (classical.DOMAIN, contrib.DOMAIN)


def converter_of_domain(domain: str, operator: str) -> Any | None:
    """The converter of an operator of one of these domains. None for other operators."""
    if domain == classical.DOMAIN:
        return classical.classical_converters().get(operator)
    return contrib.contrib_converter(domain, operator)
