# SPDX-License-Identifier: Apache-2.0
"""The command where TVM is broken, in a process of its own: it ends in words."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tvm_droplet_ms

PROGRAM = "import sys\nfrom tvm_droplet_ms.cli import main\nsys.exit(main())\n"


def doctor(folder, *arguments, as_module=False):
    """Run the doctor with a folder at the beginning of Python's path."""
    script = folder / "droplet-ms"
    script.write_text(PROGRAM)
    program = ["-m", "tvm_droplet_ms"] if as_module else [str(script)]
    package = Path(tvm_droplet_ms.__file__).parents[1]
    path = os.pathsep.join([str(folder), str(package), os.environ["PYTHONPATH"]])
    return subprocess.run(
        [sys.executable, *program, "doctor", *arguments],
        env={**os.environ, "PYTHONPATH": path},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize("error", ["ImportError", "OSError", "RuntimeError", "AttributeError"])
def test_the_doctor_looks_on_where_tvm_cannot_be_imported(tmp_path, error):
    (tmp_path / "tvm").mkdir()
    (tmp_path / "tvm" / "__init__.py").write_text(f"raise {error}('libtvm.so:\\n cannot open')\n")
    work_dir = tmp_path / "run"
    work_dir.mkdir()
    (work_dir / "database_workload.json").write_text("")
    done = doctor(tmp_path, str(work_dir))
    assert (done.returncode, done.stderr) == (1, "")
    assert "TVM cannot be imported: libtvm.so: cannot open\n" in done.stdout
    lines = [line for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert [line[9:].split(":")[0] for line in lines] == [
        *("system", "versions", "compiler", "noise", "temporary directory"),
        *("work directory", "writer", "last lines", "database", "target"),
    ]
    assert [line[:5] for line in lines].count("fault") == 1


@pytest.mark.parametrize("as_module", [False, True])
def test_versions_that_crash_are_told_in_a_sentence(tmp_path, as_module):
    for name, version in {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.15"}.items():
        stub = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        stub.mkdir()
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (stub / "METADATA").write_text(text)
    done = doctor(tmp_path, as_module=as_module)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("droplet-ms: error: apache-tvm 0.27.0.post1 with apache-tvm-ffi")
    assert done.stderr.count("\n") == 1
