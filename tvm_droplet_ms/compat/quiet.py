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
"""Keeps lines that TVM's C++ code prints off a user's terminal."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_lines(text: str) -> Iterator[None]:
    """Within it, lines on standard error that contain a text are dropped.

    All other lines are printed when it ends. TVM's C++ code writes to the file descriptor, which
    Python's ``warnings`` and ``logging`` do not see. Where the process has no standard error,
    nothing is done.

    Parameters
    ----------
    text : str
        The text.
    """
    try:
        before = os.dup(2)
    except OSError:
        yield
        return
    sys.stderr.flush()
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(before, 2)
            os.close(before)
            kept.seek(0)
            for line in kept:
                if text.encode() not in line:
                    os.write(2, line)
