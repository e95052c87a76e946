# SPDX-License-Identifier: Apache-2.0
"""Modules of PyTorch, imported, compiled without schedules, and run."""

import functools

import numpy as np
import pytest

from tvm.s_tir.meta_schedule.database import MemoryDatabase
from tvm.target import Target
from tvm_droplet_ms.frontends import import_model
from tvm_droplet_ms.session.target import cpu_target
from tvm_droplet_ms.tuning.compile.compiled_model import CompiledModel
from tvm_droplet_ms.tuning.compile.lowering import build, lower

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@functools.cache
def target():
    """This machine; LLVM need not make the kernels fast."""
    return Target({**cpu_target("auto", 1).export(), "opt-level": 0})


def compiled(imported):
    """The imported module, without any pass of the package."""
    lowered = lower(imported.mod, target(), is_reference=True)
    return CompiledModel(build(lowered, MemoryDatabase(), target()))


def check(function, *inputs, tolerance=1e-5):
    """Compare what TVM computes with what PyTorch computes, in value, shape and type.

    ``function`` may be a module, or a function of tensors.
    """
    module = function if isinstance(function, torch.nn.Module) else Function(function)
    imported = import_model((module.eval(), inputs))
    with torch.no_grad():
        expected = torch.utils._pytree.tree_leaves(module(*inputs))
    arrays = [leaf.numpy() for leaf in torch.utils._pytree.tree_leaves(inputs)]
    for found in (compiled(imported)(arrays), imported.reference.run(arrays)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == other.numpy().dtype
            assert one.shape == tuple(other.shape)
            np.testing.assert_allclose(one, other.numpy(), rtol=tolerance, atol=tolerance)
    return imported


class Function(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs, **keywords):
        return self.function(*inputs, **keywords)


def operators(mod):
    """The names of the Relax operators of a module, with repetitions."""
    from tvm import relax

    names = []

    def visit(expression):
        if isinstance(expression, relax.Call) and hasattr(expression.op, "name"):
            names.append(str(expression.op.name))

    relax.analysis.post_order_visit(mod["main"].body, visit)
    return names
