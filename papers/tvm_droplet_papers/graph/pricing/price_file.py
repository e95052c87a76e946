# SPDX-License-Identifier: Apache-2.0
"""The file of kernel prices in a work directory, one JSON object per line. Imports no TVM."""

import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

FILE_NAME = "graph_prices.jsonl"


class StoredPrice(NamedTuple):
    """The stored price of a kernel.

    ``trials``: its number of trials; 0 if it could not be scheduled. ``secs``: the best time in
    seconds; None if no trial succeeded.
    """

    trials: int
    secs: float | None


class PriceFile:
    """The file of prices.

    - ``target``: the text of the target. Prices of other targets are ignored.
    - ``prices``: the latest price for each kernel key.
    - ``foreign``: the number of lines for other targets.
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
            # A killed run may leave a torn line. Skip it; its kernel is timed again.
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
        """Store the price of a kernel in memory and in the file."""
        self.prices[key] = price
        entry = {"key": key, "target": self._target, **price._asdict()}
        with self.path.open("ab+") as file:
            text = json.dumps(entry) + "\n"
            # Start a new line after a torn last line.
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
