# SPDX-License-Identifier: Apache-2.0
"""Contexts import only their target's intrinsics and change nothing else."""

import inspect
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

import tvm
import tvm_droplet_ms
from tvm.script import ir as I
from tvm.script import tirx as T
from tvm.target import Target
from tvm.tirx.script.parser import entry
from tvm_droplet_ms.compat import lazy_intrinsics

PACKAGE = "tvm.s_tir.tensor_intrin"

# One intrinsic per module of the package; it is registered if the module has run.
MARKS = {
    "arm_cpu": "dot_4x4_i8i8s32_neon",
    "cuda": "wmma_fill_16x16x16_f32",
    "dot_product_common": "dp4a_s8s8s32",
    "hexagon": "dot_32x4_u8u8i32_vrmpy",
    "rocm": "sdot4",
    "x86": "dot_16x4_vnni",
}


def llvm(mtriple=None, **attrs):
    return {"kind": "llvm", "num-cores": 2, **({"mtriple": mtriple} if mtriple else {}), **attrs}


# The intrinsics of the default rules: src/s_tir/meta_schedule/schedule_rule/schedule_rule.cc.
TARGETS = {
    "x86-vnni": llvm("x86_64-linux-gnu", mcpu="cascadelake"),
    "x86-avx512": llvm("x86_64-linux-gnu", mcpu="skylake-avx512"),
    "x86": llvm("x86_64-linux-gnu", mcpu="haswell"),
    "arm-neon": llvm("aarch64-linux-gnu", mattr=["+neon"]),
    "arm-dotprod": llvm("aarch64-linux-gnu", mattr=["+v8.2a", "+neon", "+dotprod"]),
    "hexagon": {"kind": "hexagon", "num-cores": 4},
    "rocm": {"kind": "rocm", "mcpu": "gfx900"},
    "cuda": "nvidia/nvidia-v100",
    "cuda-tensorcore": "nvidia/nvidia-a100",
}
RVV = llvm("riscv64-linux-gnu", mattr=["+v"], mcpu="generic-rv64")

# The common header of the programs below.
COMMON = """
import json, sys, threading, time, types
import tvm, tvm_ffi
from tvm import te
from tvm.s_tir import Schedule, TensorIntrin
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target
from tvm.te import create_prim_func

PACKAGE, MARKS, ARGUMENT = json.loads(sys.argv[1])

def dense(rows=16, lanes=32, extent=64, lhs="uint8", rhs="int8"):
    a = te.placeholder((rows, extent), lhs, name="A")
    b = te.placeholder((lanes, extent), rhs, name="B")
    k = te.reduce_axis((0, extent), name="k")
    def product(i, j):
        return te.sum(a[i, k].astype("int32") * b[j, k].astype("int32"), axis=k)
    c = te.compute((rows, lanes), product, name="C")
    return tvm.IRModule({"main": create_prim_func([a, b, c])})

def context(target):
    target = Target(target)
    with target:
        return ms.TuneContext(
            dense(), target=target, space_generator="post-order-apply", rand_state=1)

def tensorized(mod, name):
    sch = Schedule(mod, debug_mask="none")
    block = sch.get_sblock("C")
    i, j, k = sch.get_loops(block)
    sch.decompose_reduction(block, j)
    sch.tensorize(j, name)
    return sch

def is_registered(name):
    return TensorIntrin.get(name, allow_missing=True) is not None

def modules_run():
    return sorted(module for module, name in MARKS.items() if is_registered(name))

def report(**values):
    print("REPORT " + json.dumps(values))
"""
IMPORT = "from tvm_droplet_ms.compat import fast_start, import_intrinsics\n"
FAST = IMPORT + "fast_start()\n"


def run(program, argument=None):
    """Report of a program run in a new process, which has imported no intrinsics before."""
    root = str(Path(tvm_droplet_ms.__file__).parents[1])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", COMMON + program, json.dumps([PACKAGE, MARKS, argument])],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("REPORT "))
    return json.loads(line.removeprefix("REPORT "))


@pytest.fixture(scope="module")
def asked():
    """Names of the intrinsics that each target's default rules request.

    No intrinsics are imported. A rule fails with the name of a missing intrinsic; an empty one is
    registered under that name until the context can be created.
    """
    return run(
        """
import re
sys.modules[PACKAGE] = types.ModuleType(PACKAGE)
nothing = create_prim_func([te.placeholder((4,), "int8"), te.compute((4,), lambda i: i)])
asked = {}
for key, target in ARGUMENT.items():
    asked[key] = []
    while True:
        try:
            context(target)
            break
        except ValueError as error:
            (name,) = re.findall("TensorIntrin '(.+)' is not registered", str(error))
            asked[key].append(name)
            TensorIntrin.register(name, nothing, nothing)
report(**asked)
""",
        TARGETS,
    )


def test_default_rules_request_intrinsics(asked):
    """Ensures that the next test is not vacuous."""
    assert asked["x86-vnni"] == ["dot_16x4_vnni"]
    assert asked["x86-avx512"] == ["dot_16x4_avx512"]
    assert asked["arm-neon"] == ["dot_4x4_i8i8s32_neon"]
    assert len(asked["arm-dotprod"]) == 3
    assert len(asked["cuda-tensorcore"]) > 20
    assert asked["x86"] == asked["hexagon"] == asked["rocm"] == asked["cuda"] == []


@pytest.mark.parametrize(
    "key, modules",
    [
        ("x86-vnni", ["x86"]),
        ("arm-dotprod", ["arm_cpu", "dot_product_common"]),
        ("hexagon", ["hexagon"]),
        ("rocm", ["dot_product_common", "rocm"]),
        ("cuda-tensorcore", ["cuda", "dot_product_common"]),
    ],
)
def test_context_imports_only_intrinsics_of_its_target(key, modules, asked):
    seen = run(
        FAST
        + """
target, names = ARGUMENT
before = modules_run()
context(target)
report(before=before, modules=modules_run(), package=PACKAGE in sys.modules,
       registered=[name for name in names if is_registered(name)])
""",
        [TARGETS[key], asked[key]],
    )
    assert seen == {"before": [], "modules": modules, "package": False, "registered": asked[key]}


def test_risc_v_rules_register_their_intrinsics():
    """The rules look up the registering function by name and call it when they are created."""
    seen = run(
        FAST
        + """
register = "tirx.tensor_intrin.register_rvv_isa_intrinsics"
before = tvm_ffi.get_global_func(register, allow_missing=True) is not None
rules = context(ARGUMENT).space_generator.sch_rules
names = list(tvm_ffi.get_global_func(register)(Target(ARGUMENT), True))
report(before=before, modules=modules_run(), names=names,
       registered=[name for name in names if is_registered(name)],
       rules=sum(type(rule).__name__ == "MultiLevelTilingWithIntrin" for rule in rules))
""",
        RVV,
    )
    assert not seen["before"]
    assert seen["modules"] == []
    assert seen["registered"] == seen["names"]
    assert seen["rules"] == len(seen["names"]) > 0


def test_vnni_design_space_equals_unpatched_tvm():
    """One space is generated with x86's intrinsics only, the other by an unpatched TuneContext."""
    spaces = """
begin = time.perf_counter()
made = context(ARGUMENT)
secs = time.perf_counter() - begin
few = modules_run()
spaces = [str(sch.trace) for sch in made.generate_design_space()]
begin = time.perf_counter()
import_intrinsics(None)
report(spaces=spaces, few=few, all=modules_run(), secs=secs, rest=time.perf_counter() - begin)
"""
    fast = run(FAST + spaces, TARGETS["x86-vnni"])
    all_first = "from tvm_droplet_ms.measure import import_intrinsics\nimport_intrinsics(None)\n"
    tvms = run(all_first + spaces, TARGETS["x86-vnni"])
    assert (fast["few"], tvms["few"]) == (["x86"], sorted(MARKS))
    assert fast["spaces"] == tvms["spaces"]
    assert any('"dot_16x4_vnni"' in space for space in fast["spaces"])
    # 0.1 s against 2 s on an idle machine; more on a busy one.
    assert fast["secs"] < fast["rest"] / 2


def test_successive_targets_and_no_target():
    seen = run(
        FAST
        + """
steps = []
for target in ARGUMENT:
    context(target)
    steps.append(modules_run())
ms.TuneContext(dense())
from tvm.s_tir.tensor_intrin.cuda import get_wmma_intrin_group
import tvm.s_tir.tensor_intrin as package
report(steps=steps, last=modules_run(), package=PACKAGE in sys.modules,
       group=get_wmma_intrin_group is package.cuda.get_wmma_intrin_group,
       same=[getattr(package, module) is sys.modules[f"{PACKAGE}.{module}"] for module in MARKS])
""",
        [TARGETS["x86-vnni"], TARGETS["cuda-tensorcore"], TARGETS["x86-avx512"]],
    )
    assert seen["steps"] == [
        ["x86"],
        ["cuda", "dot_product_common", "x86"],
        ["cuda", "dot_product_common", "x86"],
    ]
    assert seen["last"] == sorted(MARKS)
    assert seen["package"] and seen["group"]
    assert seen["same"] == [True] * len(MARKS)


@pytest.mark.parametrize(
    "target, statement, expression",
    [
        (
            TARGETS["cuda"],
            "from tvm.s_tir.tensor_intrin.cuda import get_wmma_intrin_group as group",
            "group('shared', 'shared', 'float16', 'float32', False)['init']",
        ),
        (
            TARGETS["x86"],
            "import tvm.s_tir.tensor_intrin.x86",
            "tvm.s_tir.tensor_intrin.x86.VNNI_DOT_16x4_INTRIN",
        ),
        (TARGETS["rocm"], "from tvm.s_tir.tensor_intrin import *", "rocm.AMDGPU_SDOT4_INTRIN"),
    ],
)
def test_explicit_import_still_imports_all_backends(target, statement, expression):
    seen = run(
        FAST
        + """
target, statement, expression = ARGUMENT
import_intrinsics(target)
before = modules_run()
exec(statement, globals())
files = [sys.modules[f"{PACKAGE}.{module}"].__spec__.origin for module in MARKS]
report(before=before, name=eval(expression), modules=modules_run(), files=files)
""",
        [target, statement, expression],
    )
    assert len(seen["before"]) <= 2
    assert seen["modules"] == sorted(MARKS)
    assert seen["name"] in {*MARKS.values(), "wmma_fill_16x16x16_f32"}
    assert [Path(file).stem for file in seen["files"]] == list(MARKS)


def test_component_may_import_intrinsics_during_context_creation():
    seen = run(
        FAST
        + """
from tvm.ir.utils import derived_object
seen = []

@derived_object
class Space(ms.space_generator.PySpaceGenerator):
    sch_rules, postprocs, mutator_probs = [], [], {}

    def _initialize_with_tune_context(self, context):
        seen.append(modules_run())
        import tvm.s_tir.tensor_intrin
        seen.append(modules_run())

ms.TuneContext(dense(), target=Target(ARGUMENT), space_generator=Space())
report(seen=seen)
""",
        TARGETS["x86"],
    )
    assert seen["seen"] == [["x86"], sorted(MARKS)]


def test_contexts_in_concurrent_threads():
    seen = run(
        FAST
        + """
sys.setswitchinterval(1e-5)
barrier, errors = threading.Barrier(10), []
def work(number):
    barrier.wait()
    try:
        context(ARGUMENT[number % len(ARGUMENT)])
    except BaseException as error:
        errors.append(repr(error))
threads = [threading.Thread(target=work, args=(number,)) for number in range(10)]
for thread in threads: thread.start()
for thread in threads: thread.join()
few = modules_run()
import tvm.s_tir.tensor_intrin
report(errors=errors, few=few, modules=modules_run())
""",
        [TARGETS["x86-vnni"], TARGETS["arm-neon"]],
    )
    assert seen == {
        "errors": [],
        "few": ["arm_cpu", "dot_product_common", "x86"],
        "modules": sorted(MARKS),
    }


def write_database(directory, name="dot_4x4_i8i8s32_neon"):
    """Write a database of one record tensorized for ARM, with ``name`` as the intrinsic's name."""
    run(
        FAST
        + """
directory, target = ARGUMENT
import_intrinsics(target)
mod = dense(1, 4, 4, "int8", "int8")
database = ms.database.JSONDatabase(work_dir=directory)
record = ms.database.TuningRecord(
    tensorized(mod, MARKS["arm_cpu"]).trace, database.commit_workload(mod), [1e-3], Target(target))
database.commit_tuning_record(record)
report()
""",
        [str(directory), TARGETS["arm-neon"]],
    )
    path = directory / "database_tuning_record.json"
    text = path.read_text()
    assert text.count("dot_4x4_i8i8s32_neon") == 1
    path.write_text(text.replace("dot_4x4_i8i8s32_neon", name))


OPEN = """
directory, target, opener = ARGUMENT
import_intrinsics(target)
before = modules_run()
try:
    records = [str(one.trace) for one in eval(opener).get_all_tuning_records()]
except Exception as error:
    records = str(error)
report(before=before, records=records, after=modules_run())
"""


@pytest.mark.parametrize(
    "start, opener",
    [
        (FAST, "ms.database.create('json', work_dir=directory)"),
        # Without fast_start: open_database does not need it.
        (IMPORT, "tvm_droplet_ms.open_database(directory)"),
    ],
    ids=["create", "open_database"],
)
def test_database_with_records_of_other_backend_opens(tmp_path, start, opener):
    write_database(tmp_path)
    program = "import tvm_droplet_ms\n" + start + OPEN
    seen = run(program, [str(tmp_path), TARGETS["x86"], opener])
    assert seen["before"] == ["x86"]
    (record,) = seen["records"]
    assert "dot_4x4_i8i8s32_neon" in record
    assert seen["after"] == sorted(MARKS)


def test_unreadable_database_raises_as_before(tmp_path):
    opener = "ms.database.JSONDatabase(work_dir=directory)"
    write_database(tmp_path, "made_up")
    seen = run(FAST + OPEN, [str(tmp_path), TARGETS["x86"], opener])
    assert "TensorIntrin 'made_up' is not registered" in seen["records"]
    assert seen["after"] == sorted(MARKS)
    path = tmp_path / "database_tuning_record.json"
    path.write_text(path.read_text().replace('"C"', '"Gone"'))
    seen = run(FAST + OPEN, [str(tmp_path), TARGETS["x86"], opener])
    assert isinstance(seen["records"], str)
    assert seen["after"] == ["x86"]


def test_unknown_intrinsic_imports_all_backends(asked):
    """A stand-in for the import registers the name that is looked up."""
    keys = ["get", "tensorize", "record", "intrin", "core", "create"]
    seen = run(
        FAST
        + """
from tvm_droplet_ms.compat import lazy_intrinsics
target, names = ARGUMENT
import_intrinsics(target)
known = "dot_16x4_vnni"
x86 = TensorIntrin.get(known)
mod = dense(1, 16, 4)
workload = ms.database.Workload(mod)
trace = tensorized(mod, known).trace
record = json.dumps(ms.database.TuningRecord(trace, workload, [1e-3], Target(target)).as_json())
group = dict.fromkeys(["init", "load_a", "load_b", "compute", "store"], known)
calls = {
    "get": lambda name: TensorIntrin.get(name).impl,
    "tensorize": lambda name: tensorized(mod, name).mod,
    "record": lambda name: ms.database.TuningRecord.from_json(
        json.loads(record.replace(known, name)), workload).trace,
    "intrin": lambda name: ms.schedule_rule.MultiLevelTilingWithIntrin(name, "SSRSRS").clone(),
    "core": lambda name: ms.schedule_rule.MultiLevelTilingTensorCore(
        [{**group, "store": name}], "SSSRRSRS", ["blockIdx.y", "blockIdx.x", "threadIdx.y"]
    ).clone(),
    "create": lambda name: ms.ScheduleRule.create("cuda-tensorcore"),
}
imports = []
def register(target):
    imports.append([key, target])
    for name in names if key == "create" else [key]:
        TensorIntrin.register(name, x86.desc, x86.impl)
lazy_intrinsics.import_intrinsics = register
made = []
for key in [*calls, *calls]:
    assert calls[key](key)
    made.append(key)
missing = TensorIntrin.get("missing", allow_missing=True)
report(imports=imports, made=made, missing=missing)
""",
        [TARGETS["x86"], asked["cuda-tensorcore"]],
    )
    assert seen == {"imports": [[key, None] for key in keys], "made": keys + keys, "missing": None}


def test_patching_twice_keeps_context_arguments():
    seen = run(
        """
import inspect
from tvm.s_tir.meta_schedule import TuneContext
tvms = TuneContext.__init__
from tvm_droplet_ms.measure import fast_start
imported = TuneContext.__init__ is tvms
fast_start()
ours = TuneContext.__init__
fast_start()
errors = []
for args, kwargs in [((dense(), "llvm"), {}), ((), {"target": "no-such-kind"}),
                     ((), {"num_threads": "some", "target": "llvm"})]:
    messages = []
    for init in (tvms, ours):
        try:
            init(TuneContext.__new__(TuneContext), *args, **kwargs)
        except Exception as error:
            messages.append(f"{type(error).__name__}: {error}".splitlines()[-1])
    errors.append(messages)
report(imported=imported, once=TuneContext.__init__ is ours is not tvms,
       signature=str(inspect.signature(ours)) == str(inspect.signature(tvms)), errors=errors,
       targets=[str(ms.TuneContext(mod=dense(), target=target).target.kind)
                for target in ("llvm", Target("llvm"))])
"""
    )
    assert seen["imported"] and seen["once"] and seen["signature"]
    assert seen["targets"] == ["llvm", "llvm"]
    for tvms, ours in seen["errors"]:
        assert ours == tvms


# The header of programs that look at the replaced attributes of TVM.
ATTRIBUTES = """
from tvm.s_tir.meta_schedule.database import JSONDatabase, TuningRecord
from tvm.tirx.script.parser import entry
from tvm_droplet_ms.compat import fast_start, fast_tune_contexts, import_intrinsics, restore

PLACES = [(ms.TuneContext, "__init__"), (JSONDatabase, "__init__"), (TuningRecord, "from_json"),
          (Schedule, "tensorize"), (TensorIntrin, "get"), (ms.ScheduleRule, "create"),
          (ms.schedule_rule.MultiLevelTilingWithIntrin, "__init__"),
          (ms.schedule_rule.MultiLevelTilingTensorCore, "__init__"), (entry, "inspect")]

def attributes():
    return [vars(owner)[name] for owner, name in PLACES]

tvms = attributes()

def replaced():
    return sum(new is not old for new, old in zip(attributes(), tvms))
"""


def test_last_context_exit_and_restore_put_back_tvm():
    seen = run(
        ATTRIBUTES
        + """
seen = [[]]
def see(): seen[-1].append(replaced())
import_intrinsics(ARGUMENT)
see()
with fast_tune_contexts():
    see()
    with fast_tune_contexts():
        see()
    see()
see()
try:
    with fast_tune_contexts():
        raise KeyError
except KeyError:
    see()
# The one that began first ends first.
first, second = fast_tune_contexts(), fast_tune_contexts()
first.__enter__()
second.__enter__()
first.__exit__(None, None, None)
see()
second.__exit__(None, None, None)
see()
# fast_start lasts until it is undone.
seen.append([])
restore()
see()
with fast_tune_contexts():
    fast_start()
see()
fast_start()
with fast_tune_contexts():
    restore()
    see()
see()
fast_start()
context(ARGUMENT)
see()
restore()
restore()
see()
modules, package = modules_run(), PACKAGE in sys.modules

sys.setswitchinterval(1e-5)
barrier, errors = threading.Barrier(8), []
def work():
    barrier.wait()
    for _ in range(100):
        with fast_tune_contexts():
            if replaced() != len(PLACES):
                errors.append(replaced())
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
after = replaced()

import_intrinsics(None)
everything = replaced()
fast_start()
unpatched = attributes()[:-1] == tvms[:-1]
report(seen=seen, modules=modules, package=package, errors=errors, after=after,
       everything=everything, unpatched=unpatched, all=modules_run())
""",
        TARGETS["x86"],
    )
    contexts, started = seen["seen"]
    assert contexts == [0, 9, 9, 9, 0, 0, 9, 0]
    assert started == [0, 9, 9, 0, 9, 0]
    assert (seen["modules"], seen["package"]) == (["x86"], False)
    # In threads too.
    assert (seen["errors"], seen["after"]) == ([], 0)
    # Once all intrinsics are imported there is nothing to replace.
    assert (seen["everything"], seen["unpatched"], seen["all"]) == (0, True, sorted(MARKS))


ARM = ["dot_product_common", "arm_cpu"]


@pytest.mark.parametrize(
    "target, host_triple, modules",
    [
        ({"kind": "llvm", "mcpu": "znver4"}, "x86_64-conda-linux-gnu", ["x86"]),
        ({"kind": "llvm", "mcpu": "apple-m1"}, "arm64-apple-darwin23.1.0", ARM),
        ({"kind": "llvm", "mcpu": "generic-rv64"}, "riscv64-unknown-linux-gnu", ["riscv_cpu"]),
        ({"kind": "llvm", "mcpu": "pwr9"}, "powerpc64le-unknown-linux-gnu", None),
        (llvm("x86_64-w64-mingw32"), "arm64-apple-darwin", ["x86"]),
        (llvm("i686-linux-gnu"), "arm64-apple-darwin", ["x86"]),
        (llvm("aarch64-linux-gnu"), "x86_64-linux-gnu", ARM),
        (llvm("armv7l-linux-gnueabihf"), "x86_64-linux-gnu", ARM),
        (llvm("wasm32-unknown-unknown"), "x86_64-linux-gnu", None),
        ("raspberry-pi/4b-aarch64", "x86_64-linux-gnu", ARM),
        ("nvidia/nvidia-a100", "x86_64-linux-gnu", ["dot_product_common", "cuda"]),
        ("hexagon", "x86_64-linux-gnu", ["hexagon"]),
        ("vulkan", "x86_64-linux-gnu", None),
        ("apple/m1-gpu", "arm64-apple-darwin", None),
        ("c", "x86_64-linux-gnu", None),
        (None, "x86_64-linux-gnu", None),
        # The host target only builds the calling code; schedule rules do not use it.
        (Target("cuda", host="llvm"), "x86_64-linux-gnu", ["dot_product_common", "cuda"]),
        (Target(llvm("x86_64-linux-gnu"), host=llvm("aarch64-linux-gnu")), "", ["x86"]),
    ],
)
def test_backend_of_target(monkeypatch, target, host_triple, modules):
    loaded, imported = [], []
    monkeypatch.delitem(sys.modules, PACKAGE, raising=False)
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())
    monkeypatch.setattr(lazy_intrinsics, "llvm_get_system_triple", lambda: host_triple)
    monkeypatch.setattr(lazy_intrinsics, "_load", loaded.append)
    monkeypatch.setattr(
        lazy_intrinsics, "importlib", SimpleNamespace(import_module=imported.append)
    )
    lazy_intrinsics.import_intrinsics(target)
    assert loaded == [f"{PACKAGE}.{module}" for module in modules or []]
    assert imported == ([PACKAGE] if modules is None else [])


def test_tvm_without_llvm_imports_intrinsics_of_its_package(monkeypatch):
    imported = []
    monkeypatch.delitem(sys.modules, PACKAGE, raising=False)
    monkeypatch.setattr(lazy_intrinsics, "enabled", lambda name: name != "llvm")
    monkeypatch.setattr(
        lazy_intrinsics, "importlib", SimpleNamespace(import_module=imported.append)
    )
    lazy_intrinsics.import_intrinsics("hexagon")
    assert imported == [PACKAGE]


def test_quick_stack_equals_inspect_stack():
    def compare():
        quick, stack = lazy_intrinsics._quick_stack(), inspect.stack()
        assert [info.frame for info in quick] == [info.frame for info in stack]
        for ours, pythons in zip(quick, stack, strict=True):
            if not pythons.filename.startswith("<"):
                # Both calls are on one line, so that the line numbers agree.
                assert tuple(ours) == tuple(pythons)

    compare()
    thread = threading.Thread(target=compare)
    thread.start()
    thread.join()


def test_quick_stack_parses_functions_as_before(monkeypatch):
    def parse():
        extent = 8

        @I.ir_module
        class Module:
            @T.prim_func(s_tir=True)
            def main(A: T.Buffer((extent,), "float32"), B: T.Buffer((extent,), "float32")):
                for i in range(extent):
                    with T.sblock("B"):
                        vi = T.axis.spatial(extent, i)
                        B[vi] = A[vi] * T.float32(2)

        @T.prim_func(s_tir=True)
        def main(A: T.Buffer((extent,), "float32"), B: T.Buffer((extent,), "float32")):
            for i in range(extent):
                with T.sblock("B"):
                    vi = T.axis.spatial(extent, i)
                    B[vi] = A[vi] * T.float32(2)

        return Module, main

    monkeypatch.setattr(entry, "inspect", inspect)
    before = parse()
    monkeypatch.setattr(entry, "inspect", lazy_intrinsics._quick_inspect)
    after = parse()
    for old, new in zip(before, after, strict=True):
        tvm.ir.assert_structural_equal(old, new)
    tvm.ir.assert_structural_equal(after[0]["main"], after[1])


def test_missing_intrinsic_raises_as_before():
    seen = run(
        FAST
        + """
try:
    TensorIntrin.get("made_up")
except ValueError as error:
    report(error=str(error), modules=modules_run())
"""
    )
    assert "TensorIntrin 'made_up' is not registered" in seen["error"]
    assert seen["modules"] == sorted(MARKS)
