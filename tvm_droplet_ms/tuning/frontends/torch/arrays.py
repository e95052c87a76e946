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
"""Arrays as tensors of PyTorch, and back."""

from typing import Any

import numpy as np


def as_tensor(torch: Any, array: np.ndarray) -> Any:
    """A tensor of the same shape, also without axes, and type, also bfloat16."""
    whole = np.array(array, order="C")
    if str(whole.dtype) == "bfloat16":
        # NumPy knows the type by the package ml_dtypes, PyTorch by its own name.
        return torch.from_numpy(whole.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(whole)


def as_array(torch: Any, value: Any) -> np.ndarray:
    """An array of an output: a tensor, that may require gradients, or a number."""
    if not isinstance(value, torch.Tensor):
        return np.asarray(value)
    tensor = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    if tensor.dtype is torch.bfloat16:
        import ml_dtypes

        array: np.ndarray = tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        return array
    array = tensor.numpy()
    return array
