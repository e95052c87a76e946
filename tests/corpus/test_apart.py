# SPDX-License-Identifier: Apache-2.0
"""Work in processes of their own."""

import os
import time

from .apart import Fault, run_each


def work(item: str) -> str:
    if item == "crash":
        os._exit(7)
    if item == "hang":
        time.sleep(60)
    return item.upper()


def test_a_process_that_ends_or_hangs_costs_one_item():
    found = dict(run_each(work, ["crash", "one", "hang", "two"], 5.0, workers=2))
    assert found == {
        "crash": Fault("crash", "the process ended with status 7"),
        "one": "ONE",
        "hang": Fault("timeout", "no result after 5 s"),
        "two": "TWO",
    }
