# SPDX-License-Identifier: Apache-2.0
"""Drops schedules that a draft knows to be refused, before TVM lowers them."""

from tvm.s_tir import Schedule

from ..design_spaces import EncodedSpaces
from .draft import Mask, TaskDraft, possible_points


class LaunchMask:
    """Refuses schedules that a draft knows to be refused, such as random schedules from TVM.

    It is applied like a postprocessor, but before the others, because ``VerifyGPUCode`` takes most
    of the time of a replay. ``draft``: the draft of the task, which is set after the replayer is
    made; None accepts all schedules.
    """

    def __init__(self, spaces: EncodedSpaces) -> None:
        self._spaces = spaces
        self.draft: TaskDraft | None = None

    def apply(self, schedule: Schedule) -> bool:
        """True unless a schedule is known to be refused."""
        if not isinstance(self.draft, Mask):
            return True
        point = self._spaces.find(schedule.trace)
        return point is None or bool(possible_points(self.draft, [point]))

    def __str__(self) -> str:
        return "LaunchMask"
