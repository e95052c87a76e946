# SPDX-License-Identifier: Apache-2.0
"""A whole graph with its kernels."""

from dataclasses import dataclass

from tvm_ffi import structural_hash

from ...tuning.model_kernels import ModelKernels


@dataclass
class WholeGraph:
    """A graph with its kernels."""

    kernels: ModelKernels

    @property
    def workloads(self) -> set[int]:
        """The structural hashes of its tasks."""
        return {structural_hash(task.dispatched[0]) for task in self.kernels.tasks}
