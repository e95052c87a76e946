# SPDX-License-Identifier: Apache-2.0
"""The patch for TVM: what it may import, how long it is, and that it works in TVM's own tree."""

import ast
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = sorted((ROOT / "tvm_droplet_ms" / "search_strategy" / "published").glob("*.py"))
STRATEGIES = "python/tvm/s_tir/meta_schedule/search_strategy"
TEST_FILE = "tests/python/s_tir/meta_schedule/test_meta_schedule_search_strategy_droplet.py"

WITHOUT_INTRINSICS = """
import sys
from types import ModuleType

# The tests use none of the tensor intrinsics, whose import takes 14 s and longer.
sys.modules["tvm.s_tir.tensor_intrin"] = ModuleType("tvm.s_tir.tensor_intrin")
"""


@pytest.fixture(scope="module")
def patch(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("patch") / "droplet.patch"
    subprocess.run([sys.executable, ROOT / "upstream" / "write_patch.py", out], check=True)
    return out


@pytest.fixture(scope="module")
def checkout(patch, tmp_path_factory) -> Path:
    """A copy of the installed TVM's Python tree with the patch: links, and the files it edits."""
    root = tmp_path_factory.mktemp("tvm")
    installed = Path(find_spec("tvm").submodule_search_locations[0])
    copy = root / "python" / "tvm"
    for folder in (".", "s_tir", "s_tir/meta_schedule"):
        (copy / folder).mkdir(parents=True)
        copied = {"s_tir", "meta_schedule", "search_strategy", "__pycache__"}
        for entry in (installed / folder).iterdir():
            if entry.name not in copied:
                (copy / folder / entry.name).symlink_to(entry)
    strategies = "s_tir/meta_schedule/search_strategy"
    shutil.copytree(installed / strategies, copy / strategies)
    subprocess.run(["git", "apply", "--whitespace=error-all", patch], cwd=root, check=True)
    return root


def test_published_search_is_at_most_1500_lines():
    """Without the license, which TVM's files have in another form."""
    lines = [
        line
        for source in PUBLISHED
        for line in re.sub(r"\A(#.*\n)+", "", source.read_text()).splitlines()
    ]
    assert 1000 < len(lines) <= 1500


@pytest.mark.parametrize("source", PUBLISHED, ids=lambda path: path.stem)
def test_published_search_imports_tvm_numpy_and_itself_alone(source):
    allowed = {"tvm", "tvm_ffi", "numpy", *sys.stdlib_module_names}
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            assert {name.name.split(".")[0] for name in node.names} <= allowed
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            assert node.module.split(".")[0] in allowed
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 1, "a relative import from outside the folder"


def added(patch: Path) -> str:
    lines = patch.read_text().splitlines()
    return "\n".join(line[1:] for line in lines if line.startswith("+"))


def test_patch_does_not_name_this_package(patch):
    assert not re.search(r"tvm_droplet_ms|droplet-ms|DropletStrategy", patch.read_text())


def test_patch_has_the_license_of_tvm_and_only_relative_imports(patch, checkout):
    header = (checkout / STRATEGIES / "replay_func.py").read_text().split('"""')[0]
    new = sorted((checkout / STRATEGIES).glob("droplet*.py"))
    assert len(new) == len(PUBLISHED) - 1
    for source in [*new, checkout / TEST_FILE]:
        assert source.read_text().startswith(header)
    for source in new:
        assert "from tvm.s_tir.meta_schedule" not in source.read_text()


def test_patch_passes_its_tests_in_tvms_tree(checkout):
    """TVM's own process, without this package: descent, strategy, and ``tune_tir``."""
    (checkout / "conftest.py").write_text(WITHOUT_INTRINSICS)
    log = checkout / "log.txt"
    # A file, and no pipe: the workers of TVM's builder would keep it open.
    with log.open("w") as output:
        status = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", TEST_FILE],
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout / "python")},
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=300,
        ).returncode
    text = log.read_text()
    assert status == 0, text
    last = text.splitlines()[-1]
    assert re.match(r"\d+ passed", last) and "skipped" not in last
    print(last)
