# SPDX-License-Identifier: Apache-2.0
"""Versions of TVM that crash are refused before TVM is loaded."""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import tvm_droplet_ms
from tvm_droplet_ms.compat.versions import check_versions, package_version


def install(monkeypatch, versions):
    """Make the environment look as if only these distributions were installed."""

    def version(name):
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(metadata, "version", version)


@pytest.mark.parametrize("tvm", ["0.27.0", "0.27.0.post1"])
@pytest.mark.parametrize(
    "ffi", ["0.1.15", "0.1.15.post1", "0.1.15.post2", "0.1.16", "0.2.0", "0.1.16rc1", "1.0"]
)
def test_crashing_versions_are_refused(monkeypatch, tvm, ffi):
    install(monkeypatch, {"apache-tvm": tvm, "apache-tvm-ffi": ffi})
    with pytest.raises(ImportError) as raised:
        check_versions()
    message = str(raised.value)
    assert f"apache-tvm {tvm} " in message
    assert f"apache-tvm-ffi {ffi} " in message
    assert "pip install 'apache-tvm-ffi>=0.1.14.post0,<0.1.15'" in message


@pytest.mark.parametrize(
    ("tvm", "ffi"),
    [
        ("0.27.0.post1", "0.1.14.post0"),
        ("0.27.0.post1", "0.1.14.post1"),
        ("0.27.0.post1", "0.1.9"),
        ("0.28.0", "0.1.16"),
        ("1.0", "0.1.15"),
        # Source builds are not checked.
        (None, None),
        ("0.27.0.post1", None),
        (None, "0.1.15.post2"),
    ],
)
def test_other_versions_pass(monkeypatch, tvm, ffi):
    versions = {"apache-tvm": tvm, "apache-tvm-ffi": ffi}
    install(monkeypatch, {name: version for name, version in versions.items() if version})
    check_versions()


def test_import_fails_with_crashing_versions(tmp_path):
    """In a process whose path begins with stub distributions."""
    versions = {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.15.post2"}
    for name, version in versions.items():
        stub = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        stub.mkdir()
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (stub / "METADATA").write_text(text)
    package = Path(tvm_droplet_ms.__file__).parents[1]
    program = (
        "import sys\n"
        "try:\n"
        "    import tvm_droplet_ms\n"
        "finally:\n"
        "    print('tvm' in sys.modules, 'tvm_ffi' in sys.modules)\n"
    )
    path = os.pathsep.join([str(tmp_path), str(package), os.environ["PYTHONPATH"]])
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1, done.stderr
    assert "ImportError: apache-tvm 0.27.0.post1 with apache-tvm-ffi 0.1.15.post2" in done.stderr
    assert "pip install 'apache-tvm-ffi>=0.1.14.post0,<0.1.15'" in done.stderr
    assert done.stdout.split() == ["False", "False"]


def test_a_program_that_was_not_installed_has_a_version_to_print(monkeypatch):
    assert package_version("pytest") == pytest.__version__

    def not_found(package):
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(metadata, "version", not_found)
    assert package_version("tvm-droplet-ms") == "not from a package"
