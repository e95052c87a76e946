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
"""The interface of a descent."""

from collections.abc import Generator
from typing import Protocol

from ..candidates import Candidate

Batch = list[Candidate]


class Descent(Protocol):
    """Proposes batches from the best schedule that was measured."""

    def descend(self) -> Generator[Batch, None, bool]:
        """Iterate over the batches to measure; each is in the history when the next is asked for.

        Yields
        ------
        batch : Batch
            Candidates that were never measured; not empty.

        Returns
        -------
        converged : bool
            True at a local optimum; False if nothing new could be proposed otherwise.
        """

    def batch_size(self) -> int:
        """The most candidates of the next batch."""
