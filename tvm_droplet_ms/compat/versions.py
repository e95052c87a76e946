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
"""Refuse the TVM versions that are known to crash, before TVM is loaded."""

import re
from importlib import metadata

FIRST_CRASHING_FFI = (0, 1, 15)
"""First release with which building a ``TuneContext`` of apache-tvm 0.27 segfaults in
``ToJSONGraph``; 0.1.14.post0 and 0.1.14.post1 work."""


def _release(version: str) -> tuple[int, ...]:
    """The release numbers of a version: (0, 1, 15) for ``"0.1.15.post2"`` and ``"0.1.15rc1"``."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def check_versions() -> None:
    """Raise if the installed versions of apache-tvm and apache-tvm-ffi crash MetaSchedule.

    Does nothing if either is not installed as a Python distribution (a source build).

    Raises
    ------
    ImportError
        Names both versions and the command that installs working ones.
    """
    try:
        tvm = metadata.version("apache-tvm")
        ffi = metadata.version("apache-tvm-ffi")
    except metadata.PackageNotFoundError:
        return
    if _release(ffi) >= FIRST_CRASHING_FFI and _release(tvm) <= (0, 27, 0):
        raise ImportError(
            f"apache-tvm {tvm} with apache-tvm-ffi {ffi} crashes MetaSchedule (a segmentation "
            "fault when a TuneContext is built). Expected apache-tvm-ffi below 0.1.15: "
            "pip install 'apache-tvm-ffi>=0.1.14.post0,<0.1.15'"
        )
