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
"""Keeps PyTorch out of the worker server while it imports TVM."""

import sys

KEEP_OUT = "sys.modules['torch'] = None; "
"""The statement after which ``import torch`` fails.

tvm_ffi and TVM import PyTorch where they find it, which takes 3 s, 200 MB and 600 MB of addresses.
The workers are forked from the server, and none of ours needs it.
"""


def let_pytorch_in() -> None:
    """Let ``import torch`` find PyTorch again, for tasks of users that need it."""
    if "torch" in sys.modules and sys.modules["torch"] is None:
        del sys.modules["torch"]
