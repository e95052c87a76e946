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
"""What each process of the corpus needs: imported once, by the server that they are forked from."""

import torch
import transformers

import tvm.relax.frontend.torch
import tvm_droplet_ms.model.prepare
import tvm_droplet_ms.tuning.compiled_model
import tvm_droplet_ms.tuning.frontends.torch
import tvm_droplet_ms.tuning.lowering

from . import registry

__all__ = ["registry", "torch", "transformers", "tvm", "tvm_droplet_ms"]

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
