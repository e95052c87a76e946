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
"""Refuses a second process in a work directory, before it changes anything. Imports no TVM."""

import os
from pathlib import Path

import filelock

LOCK = ".lock"
"""As of ``tuning.work_dir``."""


class SecondWriterError(RuntimeError):
    """Another process tunes in the directory."""


def refuse_second_writer(work_dir: str | os.PathLike[str]) -> None:
    """Make sure that no process tunes in a directory.

    Raises
    ------
    SecondWriterError
        If one does.
    """
    path = Path(work_dir) / LOCK
    if not path.exists():
        return
    try:
        with filelock.FileLock(path, timeout=0):
            pass
    except filelock.Timeout as error:
        raise SecondWriterError(
            f"another process tunes in {os.fspath(work_dir)!r}: wait for it, or pass another "
            "--work-dir; its command and records are left as they are"
        ) from error
