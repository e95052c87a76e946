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
"""``droplet-ms resume``: the same command with what is left of it."""

import json
import os

import pytest

from tvm_droplet_ms.cli import main, tune
from tvm_droplet_ms.cli.manifest import FILE, RECORDS, ManifestError, kept_command, read_manifest


def test_a_run_that_ends_has_taken_its_time(tmp_path):
    now = [100.0]
    for expected in (7.0, 14.0):
        with kept_command(tmp_path, {"model": "dense"}, lambda: now[0]):
            now[0] += 7.0
        assert read_manifest(tmp_path).spent_secs == expected
    # Another kernel in the same directory begins anew.
    with kept_command(tmp_path, {"model": "softmax"}, lambda: now[0]):
        now[0] += 2.0
    assert read_manifest(tmp_path).spent_secs == 2.0
    assert read_manifest(tmp_path).options == {"model": "softmax"}


def test_a_killed_run_has_taken_until_its_last_record(tmp_path):
    class Killed(Exception):
        pass

    with pytest.raises(Killed), kept_command(tmp_path, {"model": "dense"}, lambda: 1000.0):
        (tmp_path / RECORDS).write_text("")
        os.utime(tmp_path / RECORDS, (1030.0, 1030.0))
        raise Killed
    assert read_manifest(tmp_path).spent_secs == 30.0


def test_what_cannot_be_resumed_ends_in_words(tmp_path, capsys):
    assert main(["resume", str(tmp_path)]) == 1
    assert f"has no {FILE}" in capsys.readouterr().err
    (tmp_path / FILE).write_text("{")
    with pytest.raises(ManifestError, match="is damaged"):
        read_manifest(tmp_path)


def test_options_and_what_is_left_are_used(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(tune, "tune_one", lambda options, left: ran.append((options, left)) or 0)
    command = ["tune", "dense", "--work-dir", str(tmp_path), "--minutes", "4", "--trials", "9"]
    assert main([*command, "--patience", "5", "--seed", "3", "--quiet"]) == 0
    manifest = json.loads((tmp_path / FILE).read_text())
    manifest["spent_secs"] = 60.0
    (tmp_path / FILE).write_text(json.dumps(manifest))
    assert main(["resume", str(tmp_path)]) == 0
    assert main(["resume", str(tmp_path), "--minutes", "10", "--trials", "20"]) == 0
    (first, _), (again, left), (more, longer) = ran
    assert (again.trials, again.patience, again.seed, again.quiet) == (9, 5, 3, True)
    assert again.work_dir == first.work_dir == str(tmp_path)
    assert left == pytest.approx(3.0, abs=0.05)
    assert (more.trials, longer) == (20, pytest.approx(9.0, abs=0.05))
