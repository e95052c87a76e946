# SPDX-License-Identifier: Apache-2.0
"""Lines of TVM's C++ code on standard error."""

import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from tvm_droplet_ms.compat.quiet import without_lines
os.write(2, b"before\\n")
with without_lines("noise"):
    os.write(2, b"some noise here\\n")
    print("kept", file=sys.stderr)
    os.write(2, b"kept too\\n")
os.write(2, b"noise after\\n")
"""


RAISING = PROGRAM.replace('os.write(2, b"kept too\\n")', "raise SystemExit(3)")


OVERLAPPING = """
import os, threading
from tvm_droplet_ms.compat.quiet import without_lines
entered, left = threading.Event(), threading.Event()

def first():
    with without_lines("noise"):
        entered.wait(10)
    left.set()

thread = threading.Thread(target=first)
thread.start()
with without_lines("hum"):
    entered.set()
    left.wait(10)
    os.write(2, b"some noise\\n")
    os.write(2, b"a hum\\n")
    os.write(2, b"kept\\n")
thread.join()
os.write(2, b"after\\n")
"""


@pytest.mark.parametrize(
    ("program", "status", "lines"),
    [
        (PROGRAM, 0, ["before", "kept", "kept too", "noise after"]),
        (RAISING, 3, ["before", "kept"]),
        # Of two threads the first to come leaves first: errors that come later are not lost.
        (OVERLAPPING, 0, ["kept", "after"]),
    ],
    ids=["within", "raising", "overlapping"],
)
def test_only_the_lines_with_the_text_are_dropped_and_only_within(program, status, lines):
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr.splitlines()) == (status, lines)
