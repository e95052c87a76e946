# SPDX-License-Identifier: Apache-2.0
"""A finding of the doctor. Imports no TVM."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """The finding on one examined subject.

    ``state``: "fault" if tuning does not work, "warning" if it works worse, "ok" otherwise.
    ``remedy``: the advice; empty if all is well.
    """

    subject: str
    state: Literal["ok", "warning", "fault"]
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        line = f"{self.state:7}  {self.subject}: {self.text}"
        return f"{line}\n         -> {self.remedy}" if self.remedy else line
