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
"""Raise an explained error on systems other than Linux."""

import sys


def require_linux(name: str) -> None:
    """Raise an error on a system that the worker processes do not run on.

    Parameters
    ----------
    name : str
        The class or function that needs Linux.

    Raises
    ------
    RuntimeError
        If this is not Linux.
    """
    if sys.platform != "linux":
        raise RuntimeError(
            f"{name} needs Linux, and sys.platform is {sys.platform!r}: its worker processes rely "
            "on Linux's process control. Tune with TVM's LocalBuilder and LocalRunner "
            "(tvm.s_tir.meta_schedule.builder, tvm.s_tir.meta_schedule.runner) instead"
        )
