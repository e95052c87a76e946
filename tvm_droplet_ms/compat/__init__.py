# SPDX-License-Identifier: Apache-2.0
"""Compatibility with TVM: a version check, names registered with TVM, patches to TVM.

The names are imported when they are first used, so that importing this package loads no TVM.
"""

from typing import TYPE_CHECKING

from .lazy import lazy_names

if TYPE_CHECKING:
    from .lazy_intrinsics import fast_start, fast_tune_contexts, import_intrinsics, restore

__all__ = ["fast_start", "fast_tune_contexts", "import_intrinsics", "restore"]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, dict.fromkeys(__all__, ".lazy_intrinsics"))
