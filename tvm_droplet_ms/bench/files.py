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
"""Reads the file of a space or of a surrogate."""

import json
from pathlib import Path

from .space import Space, SpaceError
from .surrogates.surrogate import FORMAT as SURROGATE
from .surrogates.surrogate import Surrogate


def measured_modules(loaded: Space | Surrogate) -> Space:
    """The space of a file: of a surrogate, what TVM's own sampling draws, as it is predicted."""
    return loaded if isinstance(loaded, Space) else loaded.space


def measurements(loaded: Space | Surrogate) -> Space:
    """The measured modules of a file with their measured times: of a surrogate, its sample.

    Use this for training. ``measured_modules`` of a surrogate has predicted times.
    """
    return loaded if isinstance(loaded, Space) else loaded.sample


def load(path: Path) -> Space | Surrogate:
    """Read a file.

    Parameters
    ----------
    path : Path
        The file.

    Raises
    ------
    SpaceError
        If the file cannot be read, or holds neither.
    """
    if path.suffix == ".json":
        try:
            content = json.loads(path.read_text())
            if isinstance(content, dict) and content.get("format") == SURROGATE:
                return Surrogate.from_json(content)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SpaceError(f"{path} cannot be read as a space: {error!r}") from error
    return Space.load(path)
