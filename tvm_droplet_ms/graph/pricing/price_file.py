# SPDX-License-Identifier: Apache-2.0
"""The prices of kernels in a work directory: a line of JSON each. Imports no TVM."""

import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

FILE_NAME = "graph_prices.jsonl"


class StoredPrice(NamedTuple):
    """The stored price of a kernel.

    ``trials``: the trials that it had; 0 where it could not be scheduled. ``secs``: the best of
    them in seconds; None where none succeeded.
    """

    trials: int
    secs: float | None


class PriceFile:
    """The file of prices.

    - ``target``: the target's text: what was timed for another one is not read.
    - ``prices``: by the key of a kernel; the last of a key.
    - ``foreign``: lines of other targets.
    """

    def __init__(self, work_dir: str | os.PathLike[str], target: str) -> None:
        self.path = Path(work_dir) / FILE_NAME
        self.prices: dict[str, StoredPrice] = {}
        self.foreign = 0
        self._target = target
        self._read()

    def _read(self) -> None:
        if not self.path.exists():
            return
        for line in self.path.read_bytes().splitlines():
            # A line may be torn where a run was killed: its kernel is timed anew.
            try:
                entry = json.loads(line.decode("utf-8"))
                key, target = str(entry["key"]), entry["target"]
                price = _checked(entry["trials"], entry["secs"])
            except (ValueError, TypeError, KeyError):
                continue
            if target == self._target:
                self.prices[key] = price
            else:
                self.foreign += 1

    def add(self, key: str, price: StoredPrice) -> None:
        """Keep the price of a kernel."""
        self.prices[key] = price
        entry = {"key": key, "target": self._target, **price._asdict()}
        with self.path.open("ab+") as file:
            text = json.dumps(entry) + "\n"
            # A torn last line must not swallow this one.
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                text = text if file.read(1) == b"\n" else "\n" + text
            file.write(text.encode("utf-8"))


def _checked(trials: object, secs: object) -> StoredPrice:
    if not isinstance(trials, int) or trials < 0:
        raise ValueError(f"trials is {trials!r}")
    if secs is None:
        return StoredPrice(trials, None)
    if not isinstance(secs, float) or not (0 < secs < math.inf):
        raise ValueError(f"secs is {secs!r}")
    return StoredPrice(trials, secs)


def price_key(workloads: Iterable[int]) -> str:
    """The key of a kernel's price: the structural hashes of its workloads."""
    return " ".join(map(str, sorted(workloads)))
