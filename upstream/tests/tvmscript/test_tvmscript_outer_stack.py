# SPDX-License-Identifier: Apache-2.0
"""The stack that TVMScript's decorators take"""

# pylint: disable=missing-function-docstring,missing-class-docstring,invalid-name

import inspect

import pytest

import tvm
import tvm.testing
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T
from tvm.script.parser.core import utils


def test_outer_stack_is_that_of_inspect():
    # fmt: off
    ours, expected = utils.outer_stack(), inspect.stack()
    # fmt: on
    assert len(ours) == len(expected)
    assert ours[0].function == "test_outer_stack_is_that_of_inspect"
    for one, other in zip(ours, expected):
        assert one.frame is other.frame
        assert one[1:4] == other[1:4]
        if other.code_context is not None:
            assert one[4:6] == other[4:6]


def test_outer_stack_does_not_search_modules(monkeypatch):
    def getmodule(*_):
        raise AssertionError("searches sys.modules")

    monkeypatch.setattr(inspect, "getmodule", getmodule)
    names = {"outer_stack": utils.outer_stack}
    exec(compile("stack = outer_stack()", "<no file>", "exec"), names)
    frame_info = names["stack"][0]
    assert frame_info.filename == "<no file>"
    assert frame_info.code_context is None and frame_info.index is None


@T.prim_func(s_tir=True)
def copied(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.sblock("copy"):
            v = T.axis.spatial(8, i)
            B[v] = A[v]


def test_decorators_do_not_call_inspect_stack(monkeypatch):
    def stack(*_):
        raise AssertionError("calls inspect.stack()")

    monkeypatch.setattr(inspect, "stack", stack)

    @T.prim_func(s_tir=True)
    def kernel(A: T.Buffer((8,), "float32")):
        T.evaluate(0)

    @R.function
    def identity(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
        return x

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
            return x

    assert isinstance(kernel, tvm.tirx.PrimFunc)
    tvm.ir.assert_structural_equal(Module["main"], identity.with_attr("global_symbol", "main"))


def test_prim_func_in_module():
    @I.ir_module
    class OnTheLineAbove:
        @T.prim_func(s_tir=True)
        def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
            for i in range(8):
                with T.sblock("copy"):
                    v = T.axis.spatial(8, i)
                    B[v] = A[v]

    # A call: the decorator's own line is where the class begins.
    @I.ir_module(check_well_formed=True)
    class WithArguments:
        @T.prim_func(s_tir=True)
        def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
            for i in range(8):
                with T.sblock("copy"):
                    v = T.axis.spatial(8, i)
                    B[v] = A[v]

    alone = copied.with_attr("global_symbol", "main")
    tvm.ir.assert_structural_equal(OnTheLineAbove["main"], alone)
    tvm.ir.assert_structural_equal(WithArguments["main"], alone)


def test_prim_func_in_plain_class():
    class Plain:
        @T.prim_func(s_tir=True)
        def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
            for i in range(8):
                with T.sblock("copy"):
                    v = T.axis.spatial(8, i)
                    B[v] = A[v]

    assert isinstance(Plain.main, tvm.tirx.PrimFunc)


@pytest.mark.parametrize("extent", [4, 8])
def test_prim_func_captures(extent):
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((extent,), "float32")):
        T.evaluate(extent)

    assert int(main.params[0].shape[0]) == extent


if __name__ == "__main__":
    tvm.testing.main()
