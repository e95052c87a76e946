# SPDX-License-Identifier: Apache-2.0
"""Measured spaces and samples that come with the package."""

from pathlib import Path

DIRECTORY = Path(__file__).parent / "spaces"

SAMPLES = Path(__file__).parent / "samples"

HELD_OUT = frozenset(
    {"conv1d", "conv2d_bn_relu", "conv2d_dilated", "dense_flat", "depthwise_stride2"}
)
"""Spaces on which nothing of a strategy was chosen: they show whether a choice made on the others
holds elsewhere."""

_SUFFIXES = (".json", ".json.gz")


def shipped_spaces() -> dict[str, Path]:
    """Files of the package's spaces by name, in alphabetical order."""
    return _files(DIRECTORY)


def shipped_samples() -> dict[str, Path]:
    """Files of the package's samples by name, in alphabetical order.

    A cost model learns from them; nothing can be searched in a sample.
    """
    return _files(SAMPLES)


def shipped_training_files() -> list[Path]:
    """All files of the package that a cost model can learn from."""
    return [*shipped_spaces().values(), *shipped_samples().values()]


def find_space(text: str) -> Path:
    """File of a space or a sample: by its name in the package, or a path."""
    return (shipped_samples() | shipped_spaces()).get(text, Path(text))


def _files(directory: Path) -> dict[str, Path]:
    files = {
        path.name.removesuffix(suffix): path
        for suffix in _SUFFIXES
        for path in directory.glob(f"*{suffix}")
    }
    return dict(sorted(files.items()))
