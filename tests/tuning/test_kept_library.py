# SPDX-License-Identifier: Apache-2.0
"""A resumed run whose compiler is too slow does not replace a faster executable."""

from types import SimpleNamespace

import pytest

from tvm.target import Target
from tvm_droplet_ms.tuning import kept_library
from tvm_droplet_ms.tuning.kept_library import KeptLibrary
from tvm_droplet_ms.tuning.run_context import RunContext

TARGET = Target({"kind": "llvm", "num-cores": 1})


class Executable:
    """An executable with a latency, whose file has its name."""

    linked = None

    def __init__(self, name, secs):
        self.name, self.secs = name, secs

    def export(self, path, info):
        assert info == self.name
        path.write_text(self.name)


@pytest.mark.parametrize(
    ("lost", "kept_secs", "is_right", "expected"),
    [
        ({"dense"}, 1.0, True, "earlier"),
        ({"dense"}, 3.0, True, "new"),
        ({"dense"}, 1.0, False, "new"),
        (set(), 1.0, True, "new"),
        ({"dense"}, None, True, "new"),
    ],
)
def test_a_faster_one_stays(lost, kept_secs, is_right, expected, tmp_path, monkeypatch):
    library = tmp_path / "model.so"
    if kept_secs is not None:
        library.write_text("earlier")
    earlier = Executable("earlier", kept_secs)
    monkeypatch.setattr(kept_library.CompiledModel, "load", lambda path: earlier)
    run = KeptLibrary.__new__(KeptLibrary)
    run._context, run._shape, run.path = RunContext(TARGET, 1, tmp_path), None, library
    run._agreement = SimpleNamespace(agrees=lambda one: is_right)
    run._info = lambda one: one.name
    run.latency = lambda one, runs: SimpleNamespace(median=one.secs)
    run.keep(Executable("new", 2.0), SimpleNamespace(lost=lost))
    assert library.read_text() == expected
    assert any("dense" in note for note in run._context.notes) == (expected == "earlier")
