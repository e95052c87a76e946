# SPDX-License-Identifier: Apache-2.0
"""Blocks of kernels do not have the names of Relax variables"""

# pylint: disable=missing-function-docstring

import pytest
import tvm_ffi

import tvm
import tvm.testing
from tvm import relax, topi
from tvm.s_tir import SBlock, Schedule
from tvm.s_tir import meta_schedule as ms

TARGET = tvm.target.Target({"kind": "llvm", "num-cores": 1})


def _graph(parameter: str, variable: str) -> tvm.IRModule:
    """A mean and a layer norm of what has some names."""
    bb = relax.BlockBuilder()
    x = relax.Var(parameter, relax.TensorType((2, 6, 8), "float32"))
    weight = relax.Var(f"{parameter}_weight", relax.TensorType((8,), "float32"))
    with bb.function("main", [x, weight]):
        with bb.dataflow():
            root = bb.emit(relax.op.sqrt(x), name_hint=variable)
            norm = bb.emit(relax.op.nn.layer_norm(root, weight, weight, [-1]))
            out = bb.emit_output(relax.op.mean(norm, [1]))
        bb.emit_func_output(out)
    return relax.transform.LegalizeOps()(bb.get())


def _prim_funcs(mod: tvm.IRModule) -> dict[str, tvm.tirx.PrimFunc]:
    return {
        gvar.name_hint: func
        for gvar, func in mod.functions_items()
        if isinstance(func, tvm.tirx.PrimFunc)
    }


def _blocks(func: tvm.tirx.PrimFunc) -> list[str]:
    names = []
    tvm_ffi.structural_walk(func.body, (SBlock, lambda block: names.append(str(block.name_hint))))
    return names


def test_block_names_do_not_depend_on_variables():
    one, other = (_prim_funcs(_graph(*names)) for names in [("x", "lv226"), ("data", "features")])
    assert list(one) == list(other)
    for name, func in one.items():
        tvm.ir.assert_structural_equal(func, other[name])
        assert _blocks(func) == _blocks(other[name])
    assert "A_red" in _blocks(one["mean"])


def test_arguments_are_named_by_their_places():
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    y = relax.Var("y", relax.TensorType((4,), "float32"))
    with bb.function("main", [x, y]):
        bb.emit_func_output(bb.emit_te(topi.add, x, y))
    func = _prim_funcs(bb.get())["add"]
    assert [param.name for param in func.params][:2] == ["A", "B"]


@pytest.mark.parametrize("name", ["mean", "layer_norm"])
def test_records_replay_in_another_graph(name, tmp_path):
    one, other = (_graph(*names) for names in [("x", "lv226"), ("data", "features")])
    ours, theirs = (tvm.IRModule({"main": _prim_funcs(mod)[name]}) for mod in (one, other))
    paths = [str(tmp_path / "workloads.json"), str(tmp_path / "records.json")]
    database = ms.database.JSONDatabase(*paths)
    for mod in (ours, theirs):
        sch = Schedule(mod)
        for block in _blocks(mod["main"]):
            if block != "root":
                sch.get_loops(sch.get_sblock(block))
        workload = database.commit_workload(mod)
        record = ms.database.TuningRecord(sch.trace, workload, [1.0], TARGET)
        database.commit_tuning_record(record)
    # It replays each trace on its workload.
    database = ms.database.JSONDatabase(*paths)
    assert len(database.get_all_tuning_records()) == 2
    record = database.query_tuning_record(theirs, TARGET, "main")
    record.trace.apply_to_schedule(Schedule(theirs), remove_postproc=False)


if __name__ == "__main__":
    tvm.testing.main()
