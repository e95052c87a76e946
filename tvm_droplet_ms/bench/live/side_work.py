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
"""What progress, stop rules and the manifest take of a run of ``droplet-ms tune``.

    python -m tvm_droplet_ms.bench.live.side_work --trials 64

Tunes a kernel with the command, and times what it does beside tuning and checking.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from ...cli import main as droplet_ms
from ...cli import manifest
from ...display.displays import SeveralDisplays
from ...display.state import TaskState
from ...kernel_tuning import kernel_run
from ...kernel_tuning.stop_rules import StopRules

PARTS: Sequence[tuple[str, Any, str]] = (
    ("progress", SeveralDisplays, "batch"),
    ("progress", TaskState, "tell"),
    ("stop rules", StopRules, "tell"),
    ("records counted", kernel_run, "count_records"),
    ("manifest", manifest, "_write"),
)
"""What is timed: its name, and where the function is."""


@contextmanager
def timed(owner: Any, name: str, secs: dict[str, float], part: str) -> Iterator[None]:
    """Within it, the seconds of a function are added to those of a part."""
    function = getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*arguments, **options)
        finally:
            secs[part] = secs.get(part, 0.0) + time.perf_counter() - start

    setattr(owner, name, call)
    try:
        yield
    finally:
        setattr(owner, name, function)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernel", default="matmul_square")
    parser.add_argument("--trials", default="64")
    options = parser.parse_args(arguments)
    secs: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as work_dir, ExitStack() as stack:
        for part, owner, name in PARTS:
            stack.enter_context(timed(owner, name, secs, part))
        start = time.perf_counter()
        command = ["tune", options.kernel, "--work-dir", work_dir, "--trials", options.trials]
        status = droplet_ms(command)
        whole = time.perf_counter() - start
    print(f"{'part':16} {'ms':>8} {'share':>8}")
    for part, each in [*secs.items(), ("together", sum(secs.values()))]:
        print(f"{part:16} {1e3 * each:8.1f} {each / whole:8.3%}")
    print(f"of {whole:.1f} s")
    return status


if __name__ == "__main__":
    sys.exit(main())
