# SPDX-License-Identifier: Apache-2.0
"""The imports of each process of the corpus, made once by the server that they are forked from."""

import torch
import transformers

import tvm.relax.frontend.torch
import tvm_droplet_ms.frontends.torch
import tvm_droplet_ms.model.prepare
import tvm_droplet_ms.tuning.compile.compiled_model
import tvm_droplet_ms.tuning.compile.lowering

from . import registry

__all__ = ["registry", "torch", "transformers", "tvm", "tvm_droplet_ms"]

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
