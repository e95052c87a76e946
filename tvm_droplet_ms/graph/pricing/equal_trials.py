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
"""Gives every kernel that is compared the same number of trials. Imports no TVM."""

import math
from collections.abc import Collection

from ...tuning.priorities import Priorities


class InTurns(Priorities):
    """The task with the fewest batches is next, of these the one with the largest stake.

    A kernel with a hundred trials looks better than one with eight: what is to be compared gets as
    many. A task ends when its trials are spent; what earlier runs know makes no difference. A batch
    begins where any time is left.
    """

    def next(self, secs_left: float = math.inf, busy: Collection[int] = ()) -> int | None:
        """Choose the task of the next batch; see ``Priorities.next``."""
        open_tasks = {
            task: progress
            for task, progress in enumerate(self._tasks)
            if not progress.ended and task not in busy
        }
        return min(
            open_tasks,
            key=lambda task: (open_tasks[task].batches, -open_tasks[task].stake.secs),
            default=None,
        )
