# SPDX-License-Identifier: Apache-2.0
"""The lifecycle of the published search, by the name that other rooms import it by."""

from .published.lifecycle import PreTuningArgs, StrategyLifecycle, Task, TaskSearch

__all__ = ["PreTuningArgs", "StrategyLifecycle", "Task", "TaskSearch"]
