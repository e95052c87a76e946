# SPDX-License-Identifier: Apache-2.0
"""Measuring on several machines, through TVM's own RPC tracker and servers.

``tracker`` asks TVM's tracker with time limits, ``servers`` waits for a server and says where none
comes, ``session`` runs something on a server in a worker process of this machine, ``remote`` gives
each call a server and says whose fault a lost session is, and ``runner`` is MetaSchedule's runner.
``serve`` starts a server that outlives kernels that crash.
"""

from typing import TYPE_CHECKING

from ...lazy import lazy_names

if TYPE_CHECKING:
    from .runner import FleetRunner
    from .tracker import FleetError

__all__ = ["FleetError", "FleetRunner"]

_MODULES = {"FleetError": ".tracker", "FleetRunner": ".runner"}

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _MODULES)
