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
"""Lines of TVM's C++ code on standard error."""

import subprocess
import sys

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


def test_only_the_lines_with_the_text_are_dropped_and_only_within():
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert ended.stderr.splitlines() == ["before", "kept", "kept too", "noise after"]


def test_lines_are_printed_where_the_block_raises():
    program = PROGRAM.replace('os.write(2, b"kept too\\n")', "raise SystemExit(3)")
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 3
    assert ended.stderr.splitlines() == ["before", "kept"]


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


def test_threads_may_overlap():
    """The first to come leaves first: errors that come later are not lost."""
    ended = subprocess.run(
        [sys.executable, "-c", OVERLAPPING], capture_output=True, text=True, check=True
    )
    assert ended.stderr.splitlines() == ["kept", "after"]
