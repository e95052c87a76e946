# SPDX-License-Identifier: Apache-2.0
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
