# SPDX-License-Identifier: Apache-2.0
"""A finding of the doctor. Imports no TVM."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """A finding on one thing that was examined.

    Parameters
    ----------
    subject : str
        The thing.
    state : Literal["ok", "warning", "fault"]
        "fault" where tuning does not work, "warning" where it works worse.
    text : str
        What was found.
    remedy : str
        What to do; empty where all is well.
    """

    subject: str
    state: Literal["ok", "warning", "fault"]
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        line = f"{self.state:7}  {self.subject}: {self.text}"
        return f"{line}\n         -> {self.remedy}" if self.remedy else line
