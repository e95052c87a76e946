# SPDX-License-Identifier: Apache-2.0
"""The prober of the published search, by the name that other rooms import it by."""

from .published.decisions import Prober

__all__ = ["Prober"]
