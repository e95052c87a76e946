# SPDX-License-Identifier: Apache-2.0
"""Work in processes of their own."""

import os
import threading
import time

from .apart import Fault, run_each


def work(item: str) -> str:
    if item == "crash":
        os._exit(7)
    if item == "crash when idle":
        threading.Timer(0.2, os._exit, [3]).start()
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


def items_that_wait():
    yield "crash when idle"
    time.sleep(1.0)
    yield from ("one", "two")


def test_a_process_that_ends_while_idle_costs_one_item():
    found = dict(run_each(work, items_that_wait(), 5.0))
    assert found["crash when idle"] == "CRASH WHEN IDLE" and found["two"] == "TWO"
    assert found["one"] == Fault("crash", "the process ended with status 3")


def test_fresh_processes_share_nothing():
    items = ["crash when idle", "one", "two"]
    assert dict(run_each(work, items, 5.0, fresh=True)) == {item: item.upper() for item in items}
