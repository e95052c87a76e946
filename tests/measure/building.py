# SPDX-License-Identifier: Apache-2.0
"""Modules to build, failing build functions, and the output of an artifact."""

from collections.abc import Callable
from typing import Any

import measuring
import numpy as np

import tvm
from tvm import te
from tvm.ir import IRModule
from tvm.runtime import Module
from tvm.script import tirx as T
from tvm.target import Target
from tvm_droplet_ms.measure import build_scheduled


def with_fault(mod: IRModule, fault: Callable[[], None]) -> IRModule:
    """A module whose build, by `build_or_fail`, calls a function of `measuring`."""
    return mod.with_attr("fault", fault.__name__)


def build_or_fail(mod: IRModule, target: Target, params: Any) -> Module:
    """A build function."""
    if mod.attrs is not None and "fault" in mod.attrs:
        getattr(measuring, str(mod.attrs["fault"]))()
    return build_scheduled(mod, target, params)


def add_constant(constant: float, name: str = "main") -> IRModule:
    """b = a + constant, on 16 numbers."""
    a = te.placeholder((16,), name="a")
    b = te.compute((16,), lambda i: a[i] + constant, name="b")
    return IRModule({name: te.create_prim_func([a, b]).with_attr("global_symbol", name)})


def chain(length: int, size: int = 16) -> IRModule:
    """Additions that each wait for the one before: 0.5 to 1.6 ns each, by the CPU."""

    @T.prim_func
    def main(a: T.Buffer((size,), "float32"), b: T.Buffer((size,), "float32")):
        T.func_attr({"global_symbol": "main"})
        for _ in range(T.int64(length)):
            b[0] = b[0] + a[0]

    return IRModule({"main": main})


def constant_of(artifact: str) -> float:
    """The constant added by an artifact of `add_constant`."""
    numbers = np.arange(16, dtype="float32")
    out = tvm.runtime.tensor(np.zeros(16, dtype="float32"))
    tvm.runtime.load_module(artifact)["main"](tvm.runtime.tensor(numbers), out)
    (constant,) = set((out.numpy() - numbers).tolist())
    return constant
