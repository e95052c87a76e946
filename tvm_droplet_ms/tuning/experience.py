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
"""What is known of kernels before any of a model is measured."""

import os
from dataclasses import dataclass

from ..search_strategy.known_schedules import KnownLike, find_schedules
from ..search_strategy.prior import check_prior


@dataclass(frozen=True)
class Experience:
    """What earlier measurements, of other models, taught.

    Parameters
    ----------
    prior : str | os.PathLike[str] | None
        The pretrained cost model: "auto" for the one that the package ships, the path of a model
        file, or None.
    known : str | os.PathLike[str] | None
        The best schedules of other models: "auto" for those that the package ships, the path of a
        file of ``shipped_schedules``, or None.

    Raises
    ------
    ValueError
        If a file is missing, or holds something else.
    """

    prior: str | os.PathLike[str] | None = "auto"
    known: KnownLike = "auto"

    def __post_init__(self) -> None:
        check_prior(self.prior)
        find_schedules(self.known)
