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
"""What is counted as work beside the tuning."""

import time

from tvm_droplet_ms.bench.live import side_work
from tvm_droplet_ms.cli import manifest
from tvm_droplet_ms.display.state import TaskState


def test_shares_are_of_the_parts_that_ran(monkeypatch, capsys):
    def command(arguments):
        assert arguments[:2] == ["tune", "dense"] and arguments[-2:] == ["--trials", "8"]
        time.sleep(0.1)
        for _ in range(2):
            TaskState("k").tell([0.5], [])
        manifest._write(None, {}, 0.0, None)
        return 0

    monkeypatch.setattr(side_work, "droplet_ms", command)
    monkeypatch.setattr(TaskState, "tell", lambda *_: time.sleep(0.05))
    tell = TaskState.tell
    monkeypatch.setattr(manifest, "_write", lambda *_: time.sleep(0.1))
    assert side_work.main(["--kernel", "dense", "--trials", "8"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    shares = {row[0]: float(row[-1].rstrip("%")) for row in rows[1:-1]}
    assert shares.keys() == {"progress", "manifest", "together"}
    assert 25 < shares["progress"] < 45 and 25 < shares["manifest"] < 45
    assert TaskState.tell is tell
