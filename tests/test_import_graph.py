# SPDX-License-Identifier: Apache-2.0
"""The rooms of the package: arrows down only, no circles, folders and files of a readable size."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import tvm_droplet_ms
import tvm_droplet_papers

PACKAGE = Path(tvm_droplet_ms.__file__).parent
PAPERS = Path(tvm_droplet_papers.__file__).parent

FLOORS = (
    ("host", "design_space", "runtime"),
    ("search_strategy",),
    ("compat",),
    ("model", "measure"),
    ("session", "display"),
    ("frontends",),
    ("cost_model",),
    ("tuning",),
    ("relax",),
    ("__init__",),
    ("bench",),
    ("cli",),
    ("__main__",),
)
"""The files and folders at the top of the package, from the ground: each imports those below its
floor only."""

MOST_FILES = 20
"""The most files of a folder."""

MOST_LINES = 400
"""The most lines of a file."""


def module_name(path: Path) -> str:
    """The dotted name of a file; that of a package for its ``__init__``."""
    root = next(package.parent for package in (PACKAGE, PAPERS) if path.is_relative_to(package))
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


FILES = {
    module_name(path): path
    for package in (PACKAGE, PAPERS)
    for path in sorted(package.rglob("*.py"))
}


def imports_of(module: str) -> Iterator[str]:
    """The modules of the package that a module imports, also within functions."""
    path = FILES[module]
    inside = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name in FILES)
        elif isinstance(node, ast.ImportFrom):
            above = inside[: len(inside) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            for one in node.names:
                name = f"{source}.{one.name}"
                if name in FILES or source in FILES:
                    yield name if name in FILES else source


GRAPH = {module: set(imports_of(module)) for module in FILES}


def part_of(folder: str, module: str) -> str | None:
    """The file or folder of a folder that a module belongs to; None for one of elsewhere."""
    if module == folder:
        return "__init__"
    inside = module.removeprefix(f"{folder}.")
    return None if inside == module else inside.split(".")[0]


def arrows(folder: str) -> dict[str, set[str]]:
    """By each file or folder of a folder: the others that it imports."""
    found: dict[str, set[str]] = {}
    for module, imported in GRAPH.items():
        part = part_of(folder, module)
        if part is not None:
            others = {part_of(folder, one) for one in imported} - {part, None}
            found.setdefault(part, set()).update(filter(None, others))
    return found


def test_rooms_import_lower_floors_only() -> None:
    floor = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
    found = arrows("tvm_droplet_ms")
    assert set(found) == set(floor)
    up = [
        f"{room} imports {other}"
        for room, others in found.items()
        for other in others
        if floor[other] >= floor[room]
    ]
    assert not up


def test_the_package_needs_no_papers() -> None:
    """An option of the pipeline and a kind of cost model ask for them, and say how to install."""
    found = {
        module
        for module, imported in GRAPH.items()
        if module.startswith("tvm_droplet_ms")
        and any(other.startswith("tvm_droplet_papers") for other in imported)
    }
    assert found == {"tvm_droplet_ms.cost_model.kinds", "tvm_droplet_ms.relax.pipeline"}
    for module in found:
        outside = ast.parse(FILES[module].read_text()).body
        imported = [one for one in outside if isinstance(one, ast.Import | ast.ImportFrom)]
        assert not any("tvm_droplet_papers" in ast.unparse(one) for one in imported)


@pytest.mark.parametrize(
    "folder", [name for name, path in FILES.items() if path.name == "__init__.py"]
)
def test_no_circle_of_files_or_folders(folder: str) -> None:
    try:
        TopologicalSorter(arrows(folder)).prepare()
    except CycleError as error:
        pytest.fail(f"{folder}: {' <- '.join(error.args[1])}")


def test_strategy_imports_itself_and_design_spaces_alone() -> None:
    rooms = {
        "tvm_droplet_ms.search_strategy": "tvm_droplet_ms.design_space",
        "tvm_droplet_ms.search_strategy.published": "tvm_droplet_ms.search_strategy.published",
    }
    for module, imported in GRAPH.items():
        for room, other_room in rooms.items():
            if part_of(room, module):
                for other in imported:
                    assert part_of(room, other) or part_of(other_room, other), module


def test_folders_have_few_files() -> None:
    folders = {path.parent for path in FILES.values()}
    crowded = {
        str(folder): count
        for folder in folders
        if (count := len(list(folder.glob("*.py")))) > MOST_FILES
    }
    assert not crowded


def test_files_are_short() -> None:
    long = {
        module: lines
        for module, path in FILES.items()
        if (lines := len(path.read_text().splitlines())) > MOST_LINES
    }
    assert not long
