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
"""What may go wrong on this machine, or in a work directory, and what to do about it.

``examine_machine`` looks at the machine, ``examine_work_dir`` at the directory of a run. Each
yields a ``Finding`` for each subject; ``droplet-ms doctor`` prints them.
"""

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .finding import Finding
    from .machine import examine_machine
    from .work_directory import examine_work_dir

__all__ = ["Finding", "examine_machine", "examine_work_dir"]

_MODULES = {
    "Finding": ".finding",
    "examine_machine": ".machine",
    "examine_work_dir": ".work_directory",
}

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _MODULES)
