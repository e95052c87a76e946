# SPDX-License-Identifier: Apache-2.0
"""The extents of a model's inputs: resolve the given ones, and ask for the missing ones."""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..session.errors import ModelError

Shapes = Mapping[str, Sequence[int]]
Dims = Mapping[str, int]

EXAMPLES = (("batch", 1), ("height", 224), ("width", 224), ("seq", 128), ("len", 128))
"""The example extents in messages, by a word in the name of the extent; 1 for other names."""


@dataclass(frozen=True)
class DeclaredInput:
    """An input as a model declares it.

    ``extents``: for each axis a number, the name of a dynamic extent, or None if it has no name.
    None if the rank is unknown.
    """

    name: str
    extents: tuple[int | str | None, ...] | None

    def stated(self, dims: Dims) -> list[int | str | None] | None:
        """Return the extents, with names replaced by their numbers in ``dims``."""
        if self.extents is None:
            return None
        return [dims.get(e, e) if isinstance(e, str) else e for e in self.extents]


def fits(stated: Sequence[int | str | None] | None, shape: Sequence[int]) -> bool:
    """Return whether a shape matches the stated extents; dynamic ones match any number."""
    return stated is None or (
        len(shape) == len(stated)
        and all(not isinstance(e, int) or e == n for e, n in zip(stated, shape, strict=True))
    )


def check_shapes(shapes: Shapes) -> dict[str, tuple[int, ...]]:
    """Convert shapes to tuples of ints. Raises ``ModelError`` unless all are ints of at least 0."""
    checked = {}
    for name, shape in shapes.items():
        if isinstance(shape, str) or not hasattr(shape, "__iter__"):
            raise ModelError(
                f"shapes gives {name!r} the shape {shape!r}: expected a sequence of ints, "
                f"such as shapes={{{name!r}: (1, 3, 224, 224)}}"
            )
        for extent in shape:
            if not _is_extent(extent):
                raise ModelError(
                    f"shapes gives {name!r} the extent {extent!r}: expected an int, 0 or more"
                )
        checked[name] = tuple(operator.index(extent) for extent in shape)
    return checked


def check_dims(dims: Dims) -> dict[str, int]:
    """Convert named extents to ints. Raises ``ModelError`` unless all are ints of at least 0."""
    for name, extent in dims.items():
        if not _is_extent(extent):
            raise ModelError(
                f"dims gives {name!r} the extent {extent!r}: expected an int, 0 or more, such as "
                f"dims={{{name!r}: {_example(name)}}}"
            )
    return {name: operator.index(extent) for name, extent in dims.items()}


def resolve_shapes(
    inputs: Sequence[DeclaredInput], shapes: Shapes, dims: Dims
) -> dict[str, list[int]]:
    """Return the shapes of all inputs.

    A named extent is the same in all inputs: it comes from `dims`, or else from the first input in
    `shapes` that has it. Raises ``ModelError`` if a name is unknown, a shape contradicts the model,
    or extents are missing; the message lists all missing extents.
    """
    shapes, known = check_shapes(shapes), check_dims(dims)
    names = [declared.name for declared in inputs]
    if unknown := sorted(set(shapes) - set(names)):
        raise ModelError(f"shapes names the input {unknown[0]!r}: the model has {', '.join(names)}")
    free = _free_names(inputs)
    if unknown := sorted(set(known) - set(free)):
        found = f"by name it leaves open {', '.join(free)}" if free else "none is open by name"
        raise ModelError(f"dims names the extent {unknown[0]!r}, which no input has: {found}")
    for declared in inputs:
        if declared.name in shapes:
            _check_fit(declared, shapes[declared.name], known)
    known = named_extents(inputs, shapes, known)
    missing = [each for each in inputs if each.name not in shapes and not _is_known(each, known)]
    if missing:
        raise ModelError(_missing_sentence(missing, known))
    return {
        declared.name: list(shapes[declared.name])
        if declared.name in shapes
        else [_value(extent, known) for extent in declared.extents or ()]
        for declared in inputs
    }


def named_extents(inputs: Sequence[DeclaredInput], shapes: Shapes, dims: Dims) -> dict[str, int]:
    """Return the named extents from ``dims`` and from the shapes of inputs."""
    known = dict(dims)
    for declared in inputs:
        for extent, value in zip(declared.extents or (), shapes.get(declared.name, ())):
            if isinstance(extent, str):
                known.setdefault(extent, value)
    return known


def _is_extent(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and operator.index(value) >= 0
    except TypeError:
        return False


def _free_names(inputs: Sequence[DeclaredInput]) -> list[str]:
    named = (each for declared in inputs for each in declared.extents or ())
    return list(dict.fromkeys(each for each in named if isinstance(each, str)))


def _is_known(declared: DeclaredInput, known: Dims) -> bool:
    return declared.extents is not None and all(
        isinstance(extent, int) or (extent is not None and extent in known)
        for extent in declared.extents
    )


def _value(extent: int | str | None, known: Dims) -> int:
    return extent if isinstance(extent, int) else known[str(extent)]


def _check_fit(declared: DeclaredInput, shape: tuple[int, ...], dims: Dims) -> None:
    """Raise ``ModelError`` if a shape contradicts the model or `dims`."""
    if not fits(declared.stated(dims), shape):
        raise ModelError(
            f"shapes gives {declared.name!r} the shape {shape}: the model has ({_shown(declared)})"
            + (" and dims are " + str(dict(dims)) if dims else "")
        )


def _shown(declared: DeclaredInput) -> str:
    return ", ".join("?" if extent is None else str(extent) for extent in declared.extents or ())


def _open(declared: DeclaredInput) -> str:
    return "no shape" if declared.extents is None else f"the open shape ({_shown(declared)})"


def _example(name: str) -> int:
    return next((value for word, value in EXAMPLES if word in name.lower()), 1)


def _missing_sentence(missing: Sequence[DeclaredInput], known: Dims) -> str:
    """Return a message that asks for all missing extents: by name, or by a shape without names."""
    inputs = ", ".join(f"input {each.name!r} has {_open(each)}" for each in missing)
    unnamed = [each for each in missing if each.extents is None or None in each.extents]
    named = [each for each in missing if each not in unnamed]
    names = [name for name in _free_names(named) if name not in known]
    dims = ", ".join(f"{name!r}: {_example(name)}" for name in names)
    options = [f"--dim {name}={_example(name)}" for name in names]
    asked = [f"dims={{{dims}}}"] if names else []
    if unnamed:
        shapes = {each.name: _example_shape(each, known) for each in unnamed}
        shown = ", ".join(
            f"{name!r}: ({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"
            for name, shape in shapes.items()
        )
        asked.append(f"shapes={{{shown}}}")
        options += [f"--shape {name}={','.join(map(str, shape))}" for name, shape in shapes.items()]
    return (
        f"{inputs}: pass the extents to tune for, such as {', '.join(asked)} or {' '.join(options)}"
    )


def _example_shape(declared: DeclaredInput, known: Dims) -> list[int]:
    if declared.extents is None:
        return [1, 3, 224, 224]
    return [
        extent if isinstance(extent, int) else known.get(str(extent), _example(str(extent)))
        for extent in declared.extents
    ]
