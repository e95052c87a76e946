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
"""Where the time of a run goes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Parts:
    """Seconds by part. Parts do not overlap; a part that is entered again adds up."""

    def __init__(self) -> None:
        self.secs: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Add the seconds of a block to a part."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.secs[name] = self.secs.get(name, 0.0) + time.monotonic() - start
