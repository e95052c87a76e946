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
"""The target of the GPU run."""

from typing import Any


def gpu_target(name: str) -> Any:
    """The target of a name; "device" asks the card for its limits.

    Raises
    ------
    RuntimeError
        If "device" is asked for and no CUDA device answers.
    """
    import tvm
    from tvm.target import Target

    if name != "device":
        return Target(name)
    if not tvm.runtime.enabled("cuda") or not tvm.cuda(0).exist:
        raise RuntimeError(
            "TVM's CUDA runtime found no device: libcudart.so.13 and libcuda.so.1 are to be on "
            "LD_LIBRARY_PATH, with a driver of CUDA 13"
        )
    return Target.from_device(tvm.cuda(0))
