# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""How a run goes: a table on a terminal, lines elsewhere, JSON lines in a file."""

from typing import TYPE_CHECKING

from ..lazy import lazy_names

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
