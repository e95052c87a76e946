# SPDX-License-Identifier: Apache-2.0
"""The progress of a run: a table on a terminal, lines elsewhere, JSON lines in a file."""

from typing import TYPE_CHECKING

from ..compat.lazy import lazy_exports

if TYPE_CHECKING:
    from .callback import ProgressCallback as ProgressCallback
    from .displays import Display as Display
    from .displays import JsonLinesDisplay as JsonLinesDisplay
    from .displays import LineDisplay as LineDisplay
    from .displays import SeveralDisplays as SeveralDisplays
    from .displays import console_display as console_display
    from .displays import run_display as run_display
    from .state import RunState as RunState
    from .state import TaskState as TaskState
else:
    __getattr__, __all__ = lazy_exports(__name__, __file__)
