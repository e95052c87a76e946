# SPDX-License-Identifier: Apache-2.0
"""Droplet search for Apache TVM's MetaSchedule.

The public names and modules of this package are imported lazily, at first use:
``import tvm_droplet_ms`` does not import TVM. It registers the Relax pipeline ``droplet_tuning``
with TVM, in either import order.
"""

import os
import sys
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from .compat.lazy import lazy_exports
from .compat.registration import register_with_tvm
from .compat.versions import check_versions

if TYPE_CHECKING:
    from . import (  # noqa: F401
        cost_model,
        display,
        host,
        measure,
        relax,
        runtime,
        search_strategy,
        session,
        tuning,
    )
    from .relax import DropletTuneIRMod as DropletTuneIRMod
    from .relax import droplet_tuning_pipeline as droplet_tuning_pipeline
    from .runtime import InferenceSession as InferenceSession
    from .search_strategy import DropletStrategy as DropletStrategy
    from .session.database import open_database as open_database
    from .tuning import tune as tune
    from .tuning.kernel import tune_kernel as tune_kernel
else:
    _export, __all__ = lazy_exports(__name__, __file__)

    def __getattr__(name: str) -> Any:
        return import_module(f"{__name__}.{name}") if name in _modules() else _export(name)

    def __dir__() -> list[str]:
        return sorted({*__all__, *_modules()})


def _modules() -> set[str]:
    """The names of this package's direct submodules, except ``__main__``."""
    return {module.name for module in iter_modules(__path__)} - {"__main__"}


def _is_command() -> bool:
    """True in the process of ``droplet-ms`` or ``python -m tvm_droplet_ms``."""
    program = (getattr(sys, "argv", None) or [""])[0]
    is_module = program == "-m" and __name__ in sys.orig_argv
    return is_module or os.path.basename(program) == "droplet-ms"


try:
    check_versions()
except ImportError as error:
    # A command reports errors in one sentence, but its own handler is not imported yet.
    if _is_command():
        sys.exit(f"droplet-ms: error: {error}")
    raise
register_with_tvm()
