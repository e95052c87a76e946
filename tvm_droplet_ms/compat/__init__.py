# SPDX-License-Identifier: Apache-2.0
"""Compatibility with TVM: a version check, names registered with TVM, patches to TVM.

The names are imported when they are first used, so that importing this package loads no TVM.
"""

from typing import TYPE_CHECKING

from .lazy import lazy_exports

if TYPE_CHECKING:
    from .lazy_intrinsics import fast_start as fast_start
    from .lazy_intrinsics import fast_tune_contexts as fast_tune_contexts
    from .lazy_intrinsics import import_intrinsics as import_intrinsics
    from .lazy_intrinsics import restore as restore
else:
    __getattr__, __all__ = lazy_exports(__name__, __file__)
