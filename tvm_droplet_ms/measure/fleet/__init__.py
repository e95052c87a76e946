# SPDX-License-Identifier: Apache-2.0
"""Measures on several machines, through TVM's own RPC tracker and servers.

``tracker`` queries TVM's tracker with time limits, and waits for a server. ``session`` calls
functions on a server from a worker process of this machine. ``remote`` assigns each call to a
server and decides who is at fault for a lost session. ``runner`` is the MetaSchedule runner.
``serve`` starts a server that outlives kernel crashes.
"""

from typing import TYPE_CHECKING

from ...compat.lazy import lazy_exports

if TYPE_CHECKING:
    from .runner import FleetRunner as FleetRunner
    from .tracker import FleetError as FleetError
else:
    __getattr__, __all__ = lazy_exports(__name__, __file__)
