# SPDX-License-Identifier: Apache-2.0
"""Public names, imports, and registration with TVM."""

import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tvm_ffi

import tvm_droplet_ms
from tvm.relax.pipeline import PIPELINE_MAP, get_pipeline
from tvm_droplet_ms.compat.registration import register_with_tvm

PACKAGE = Path(tvm_droplet_ms.__file__).parent


def run(program: str, *arguments: str) -> str:
    """Output of a program run in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), os.environ["PYTHONPATH"]]),
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def modules_without_tvm() -> list[str]:
    """Modules whose docstrings promise not to import TVM."""
    return [
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.parent != PACKAGE or path.name != "__init__.py"
        if re.search(r"[Ii]mports no TVM|[Dd]oes not import TVM", path.read_text().split('"""')[1])
    ]


def test_modules_without_tvm_do_not_import_it() -> None:
    modules = modules_without_tvm()
    assert {name.split(".")[1] for name in modules} == {
        "bench",
        "cli",
        "compat",
        "cost_model",
        "design_space",
        "display",
        "measure",
        "model",
        "runtime",
        "search_strategy",
        "session",
        "tuning",
    }
    program = """
import importlib, sys

def check(step):
    loaded = {"tvm", "tvm_ffi"} & set(sys.modules)
    assert not loaded, f"{step} imported {loaded}"

import tvm_droplet_ms
check("the package")
dir(tvm_droplet_ms)
from tvm_droplet_ms import cli
commands = [[], ["demo"], ["pretrain"], ["space"], ["space", "build"], ["compare"]]
commands += [["doctor"], ["tune"], ["report"], ["resume"]]
for command in commands:
    try:
        cli.main([*command, "--help"])
    except SystemExit as end:
        assert end.code == 0
    check(command)
heavy = {"numpy", "scipy", "xgboost", "psutil", "matplotlib"} & set(sys.modules)
assert not heavy, f"--help imported {heavy}"
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError as error:
        assert "pip install" in str(error), error  # An extra of the package that is not installed.
    check(name)
"""
    run(program, *modules)


def test_names_register_when_tvm_is_imported_later() -> None:
    """The process lacks the Linux and Unix features that the package uses."""
    program = """
import json, os, sys
sys.modules["resource"] = None
del os.sched_getaffinity

import tvm_droplet_ms
from tvm import relax
import tvm_ffi

options = {"total_trials": 1, "target": "llvm", "builder": "local", "runner": "local"}
pipeline = relax.get_pipeline("droplet_tuning", **options)
strategy = tvm_ffi.get_global_func("tvm_droplet_ms.DropletStrategy")({"explore_trials": 2})
again = tvm_ffi.get_global_func("tvm_droplet_ms.DropletStrategy")({})
print(json.dumps([
    pipeline.info.name,
    type(strategy).__name__ == type(again).__name__,
    tvm_ffi.get_global_func("tvm_droplet_ms.find_prior", allow_missing=True) is not None,
    tvm_droplet_ms.DropletStrategy is tvm_droplet_ms.search_strategy.DropletStrategy,
    tvm_droplet_ms.open_database is tvm_droplet_ms.session.database.open_database,
    relax.pipeline.__spec__.loader is relax.pipeline.__loader__,
]))
"""
    assert json.loads(run(program)) == ["droplet_tuning_pipeline", True, True, True, True, True]


def test_modules_are_package_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in docs/strategy.md: ``tvm_droplet_ms.measure.TuningProfile(builder, runner)``."""
    # Another test may have imported it.
    monkeypatch.delattr(tvm_droplet_ms, "measure", raising=False)
    assert tvm_droplet_ms.measure.TuningProfile(None, None).parts()["building"] == 0.0


def test_public_names_are_listed_and_importable() -> None:
    listed = dir(tvm_droplet_ms)
    assert {*tvm_droplet_ms.__all__, "cost_model", "measure", "relax"} <= set(listed)
    for name in listed:
        assert getattr(tvm_droplet_ms, name) is not None


def test_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'tvm_droplet_ms' has no attribute 'no_such_name'"):
        _ = tvm_droplet_ms.no_such_name
    with pytest.raises(ImportError, match="no_such_name"):
        from tvm_droplet_ms import no_such_name  # noqa: F401


def test_names_register_when_tvm_is_imported_first() -> None:
    pipeline = get_pipeline("droplet_tuning", total_trials=1, target="llvm")
    assert pipeline.info.name == "droplet_tuning_pipeline"
    assert tvm_ffi.get_global_func("tvm_droplet_ms.DropletStrategy") is not None


def test_register_is_idempotent() -> None:
    before = PIPELINE_MAP["droplet_tuning"]
    register_with_tvm()
    assert PIPELINE_MAP["droplet_tuning"] is before


def test_register_keeps_pipeline_of_other_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PIPELINE_MAP, "droplet_tuning", PIPELINE_MAP["zero"])
    with pytest.raises(ValueError, match="already been registered"):
        register_with_tvm()
    assert PIPELINE_MAP["droplet_tuning"] is PIPELINE_MAP["zero"]


LOOKED_UP = """
import importlib.util, os, sys
import tvm_droplet_ms
finder = next(f for f in sys.meta_path if type(f).__name__ == "_RegisterAfterImport")
(folder,) = importlib.util.find_spec("tvm").submodule_search_locations
spec = finder.find_spec("tvm.relax.pipeline", [os.path.join(folder, "relax")])
from tvm.relax.pipeline import PIPELINE_MAP
print(spec.name, "droplet_tuning" in PIPELINE_MAP, finder in sys.meta_path)
"""


def test_a_specification_may_be_asked_for_without_an_import() -> None:
    """Tools ask for it; the names are registered when the module is imported all the same."""
    ended = subprocess.run(
        [sys.executable, "-c", LOOKED_UP], capture_output=True, text=True, check=False
    )
    assert ended.stdout.split() == ["tvm.relax.pipeline", "True", "False"], ended.stderr


def calls_with_flags():
    """Public calls by name, and the arguments that each needs."""
    from tvm_droplet_ms import cost_model, measure
    from tvm_droplet_papers import graph

    return {
        tvm_droplet_ms.tune: (None,),
        tvm_droplet_ms.tune_kernel: (None,),
        tvm_droplet_ms.droplet_tuning_pipeline: (1, "llvm"),
        tvm_droplet_ms.DropletTuneIRMod: ({}, "logs", 1),
        tvm_droplet_ms.DropletStrategy: (),
        cost_model.TransferModel: (),
        graph.optimize: (None, "auto"),
        measure.fast_measure: ("llvm",),
        measure.WarmBuilder: (),
        measure.PromptRunner: (),
    }


def test_flags_that_are_no_booleans_are_refused():
    """``exact="no"`` would be true."""
    refused = []
    for call, arguments in calls_with_flags().items():
        for name, parameter in inspect.signature(call).parameters.items():
            if parameter.annotation in (bool, "bool"):
                for value in ("no", None, 1):
                    words = re.escape(f"{name}={value!r}: expected True or False")
                    with pytest.raises(ValueError, match=words):
                        call(*arguments, **{name: value})
                refused.append(name)
    assert {"exact", "learns", "paired", "layouts", "process_wide"} <= set(refused)
