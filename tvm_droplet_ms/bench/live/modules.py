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
"""The name by which measurements know a module, and the text from which it is made again."""

from typing import Any

from tvm_ffi import structural_hash

from tvm import IRModule
from tvm.s_tir import Trace
from tvm.s_tir.meta_schedule.database import TuningRecord, Workload


def module_key(mod: IRModule) -> str:
    """The structural hash of a module in hexadecimal, the same in every process."""
    return f"{structural_hash(mod) % (1 << 64):016x}"


def trace_json(trace: Trace) -> Any:
    """A trace in the types of Python's ``json``, which ``Trace.as_json`` does not always give."""
    return TuningRecord(trace, Workload(IRModule()), []).as_json()[0]
