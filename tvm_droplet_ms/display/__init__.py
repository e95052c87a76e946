# SPDX-License-Identifier: Apache-2.0
"""The progress of a run: a table on a terminal, lines elsewhere, JSON lines in a file."""

from typing import TYPE_CHECKING

from ..compat.lazy import lazy_names

if TYPE_CHECKING:
    from .callback import ProgressCallback
    from .displays import (
        Display,
        JsonLinesDisplay,
        LineDisplay,
        SeveralDisplays,
        console_display,
        run_display,
    )
    from .state import RunState, TaskState

__all__ = [
    "Display",
    "JsonLinesDisplay",
    "LineDisplay",
    "ProgressCallback",
    "RunState",
    "SeveralDisplays",
    "TaskState",
    "console_display",
    "run_display",
]

_MODULES = {
    "Display": ".displays",
    "JsonLinesDisplay": ".displays",
    "LineDisplay": ".displays",
    "ProgressCallback": ".callback",
    "RunState": ".state",
    "SeveralDisplays": ".displays",
    "TaskState": ".state",
    "console_display": ".displays",
    "run_display": ".displays",
}

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _MODULES)
