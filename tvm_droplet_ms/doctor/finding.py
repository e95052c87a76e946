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
"""A finding of the doctor. Imports no TVM."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """What was found out about one thing.

    Parameters
    ----------
    subject : str
        The thing.
    state : Literal["ok", "warning", "fault"]
        "fault" where tuning does not work, "warning" where it works worse.
    text : str
        What was found.
    remedy : str
        What to do; empty where all is well.
    """

    subject: str
    state: Literal["ok", "warning", "fault"]
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        line = f"{self.state:7}  {self.subject}: {self.text}"
        return f"{line}\n         -> {self.remedy}" if self.remedy else line
