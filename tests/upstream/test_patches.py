# SPDX-License-Identifier: Apache-2.0
"""The patches for TVM: what they may import, how long they are, and that they work in its tree."""

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
BUGS = ("script-outer-stack", "x86-vnni-operands", "relax-block-names", "target-hidden-features")
DROPLET = ("droplet-descent", "droplet-strategy")
NAMES = [f"{number:04}-{name}" for number, name in enumerate((*BUGS, *DROPLET), start=1)]
SEPARATE = NAMES[:-1]
"""All but the last, which builds on the one before it."""


@pytest.fixture(scope="module")
def patches(tmp_path_factory) -> dict[str, Path]:
    out = tmp_path_factory.mktemp("patches") / "series"
    subprocess.run([sys.executable, ROOT / "upstream" / "write_patches.py", out], check=True)
    return {patch.stem: patch for patch in sorted(out.iterdir())}


@pytest.fixture(scope="module")
def checkout(patches, tmp_path_factory) -> Path:
    """A copy of the installed TVM's Python tree with all patches, applied in order."""
    root = copy_of_tvm(tmp_path_factory.mktemp("tvm"), patches)
    for patch in patches.values():
        apply(patch, root)
    return root


def copy_of_tvm(root: Path, patches: dict[str, Path]) -> Path:
    """The installed TVM's Python tree: links, but for the files that patches edit."""
    edited = {
        path.removeprefix("python/")
        for patch in patches.values()
        for path in re.findall(r"^--- a/(.+)$", patch.read_text(), re.MULTILINE)
    }
    # A new file must not be written into the installed TVM, through a folder's link.
    edited.add(f"{STRATEGIES.removeprefix('python/')}/__init__.py")
    own = {parent for path in edited for parent in Path(path).parents} - {Path(".")}
    site = Path(find_spec("tvm").submodule_search_locations[0]).parent
    for folder in sorted(own):
        (root / "python" / folder).mkdir(parents=True)
        for entry in (site / folder).iterdir():
            path = folder / entry.name
            if str(path) in edited:
                shutil.copy(entry, root / "python" / path)
            elif path not in own and entry.name != "__pycache__":
                (root / "python" / path).symlink_to(entry)
    return root


def apply(patch: Path, root: Path) -> None:
    subprocess.run(["git", "apply", "--whitespace=error-all", patch], cwd=root, check=True)


def files_of(patch: Path) -> list[str]:
    return re.findall(r"^\+\+\+ b/(tests/python/.+)$", patch.read_text(), re.MULTILINE)


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


def test_bugs_come_first(patches):
    assert list(patches) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_patch_has_a_title_a_message_and_one_test_file(patches, name):
    patch = patches[name]
    number = NAMES.index(name) + 1
    lines = patch.read_text().partition("\n---\n")[0].splitlines()
    title = re.fullmatch(rf"Subject: \[PATCH {number}/{len(NAMES)}\] (\[.+\] .+)", lines[0])
    assert title and len(title[1]) <= 80
    assert lines[1] == "" and len(lines) > 3
    assert len(files_of(patch)) == 1


@pytest.mark.parametrize("name", SEPARATE)
def test_patch_applies_alone(patches, name, tmp_path):
    apply(patches[name], copy_of_tvm(tmp_path, {name: patches[name]}))


def test_mends_are_small(patches):
    for name in NAMES[: len(BUGS)]:
        source, _, rest = patches[name].read_text().partition("diff --git a/python/")
        assert "diff --git a/tests/" in source
        changed = [line for line in rest.splitlines() if re.match(r"[+-](?![+-])", line)]
        assert 0 < len(changed) <= 60


def test_page_lists_the_patches_with_their_lines(patches):
    page = (ROOT / "docs" / "upstream" / "droplet.md").read_text()
    listed = re.findall(r"^\| `(.+)` \| .+ \| (\d+) \| (\d+) \|$", page, re.MULTILINE)
    expected = []
    for name, patch in patches.items():
        files = re.split(r"^diff --git a/(\w+)/.*\n", patch.read_text(), flags=re.MULTILINE)
        added = dict.fromkeys(("python", "tests"), 0)
        for folder, text in zip(files[1::2], files[2::2], strict=True):
            added[folder] += len(re.findall(r"^\+(?!\+\+ )", text, re.MULTILINE))
        expected.append((name, *map(str, added.values())))
    assert listed == expected


def test_patches_do_not_name_this_package(patches):
    for patch in patches.values():
        assert not re.search(r"tvm_droplet_ms|droplet-ms|DropletStrategy", patch.read_text())


def test_patches_have_the_license_of_tvm_and_only_relative_imports(patches, checkout):
    header = (checkout / STRATEGIES / "replay_func.py").read_text().split('"""')[0]
    new = sorted((checkout / STRATEGIES).glob("droplet*.py"))
    assert len(new) == len(PUBLISHED) - 1
    tests = [checkout / path for patch in patches.values() for path in files_of(patch)]
    for source in [*new, *tests]:
        assert source.read_text().startswith(header)
    for source in new:
        assert "from tvm.s_tir.meta_schedule" not in source.read_text()


def test_first_half_of_the_search_imports_nothing_of_the_second(patches, tmp_path):
    root = copy_of_tvm(tmp_path, patches)
    apply(patches[NAMES[-2]], root)
    new = {path.stem for path in (root / STRATEGIES).glob("droplet*.py")}
    assert len(new) == 5
    for name in new:
        source = (root / STRATEGIES / f"{name}.py").read_text()
        assert set(re.findall(r"from \.(droplet\w*)", source)) <= new


def test_protocols_with_one_implementation_are_left_out(checkout):
    """Their documentation is at what implements them."""
    search = ast.parse((checkout / STRATEGIES / "droplet_search.py").read_text())
    classes = {node.name: node for node in search.body if isinstance(node, ast.ClassDef)}
    assert list(classes) == ["Budget", "Search", "CoordinateDescent"]
    annotations = [
        ast.unparse(node.annotation)
        for node in classes["Search"].body
        if isinstance(node, ast.AnnAssign)
    ]
    assert {"Evolution", "'CoordinateDescent'"} <= set(annotations)
    evolution = ast.parse((checkout / STRATEGIES / "droplet_evolution.py").read_text())
    classes |= {node.name: node for node in evolution.body if isinstance(node, ast.ClassDef)}
    for name in ("Evolution", "CoordinateDescent"):
        for method in classes[name].body:
            if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
                assert "See ``" not in (ast.get_docstring(method) or "See ``")


@pytest.mark.parametrize("name", NAMES)
def test_patch_passes_its_tests_in_tvms_tree(patches, checkout, name):
    """In TVM's own process, without this package."""
    status, text = run_tests(checkout, files_of(patches[name]))
    assert status == 0, text
    last = text.splitlines()[-1]
    assert re.match(r"\d+ passed", last) and "failed" not in last
    # A CPU without VNNI cannot run its kernels.
    assert "skipped" not in last or name == NAMES[1]
    print(last)


def test_tests_of_bugs_fail_without_their_mends(patches, tmp_path):
    """The first patch is in the tree of the others, whose imports take 14 s without it."""
    bugs = NAMES[: len(BUGS)]
    for number, (applied, missing) in enumerate([([], bugs[:1]), (bugs[:1], bugs[1:])]):
        root = copy_of_tvm(tmp_path / str(number), patches)
        for name in applied:
            apply(patches[name], root)
        tests = [path for name in missing for path in files_of(patches[name])]
        for name in missing:
            subprocess.run(
                ["git", "apply", "--include=tests/*", patches[name]], cwd=root, check=True
            )
        status, text = run_tests(root, tests)
        assert status == 1, text
        assert all(f"FAILED {path}" in text for path in tests), text


def run_tests(root: Path, paths: list[str]) -> tuple[int, str]:
    """Run test files in a tree; returns pytest's exit status and what it printed."""
    log = root / "log.txt"
    # A file, and no pipe: the workers of TVM's builder would keep it open.
    with log.open("w") as output:
        status = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *paths],
            cwd=root,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(root / "python"), os.environ["PYTHONPATH"]]),
            },
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=300,
        ).returncode
    return status, log.read_text()
