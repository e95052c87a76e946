# SPDX-License-Identifier: Apache-2.0
"""Diagnoses likely problems of this machine or a work directory, with a remedy for each.

``examine_machine`` examines the machine, and ``examine_work_dir`` the directory of a run. Each
yields a ``Finding`` per subject; ``droplet-ms doctor`` prints them.
"""

from typing import TYPE_CHECKING

from ...compat.lazy import lazy_names

if TYPE_CHECKING:
    from .finding import Finding
    from .machine import examine_machine
    from .work_directory import examine_work_dir

__all__ = ["Finding", "examine_machine", "examine_work_dir"]

_MODULES = {
    "Finding": ".finding",
    "examine_machine": ".machine",
    "examine_work_dir": ".work_directory",
}

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _MODULES)
