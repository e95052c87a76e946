# SPDX-License-Identifier: Apache-2.0
"""Measured spaces and samples that come with the package."""

from pathlib import Path

DIRECTORY, SAMPLES = (Path(__file__).parent / name for name in ("spaces", "samples"))

HELD_OUT = frozenset(
    {"conv1d", "conv2d_bn_relu", "conv2d_dilated", "dense_flat", "depthwise_stride2"}
)
"""Held-out spaces. No setting of a strategy was chosen on them: they show whether settings chosen
on the other spaces generalize."""


def shipped_spaces() -> dict[str, Path]:
    """Files of the package's spaces by name, in alphabetical order."""
    return _files(DIRECTORY)


def shipped_samples() -> dict[str, Path]:
    """Files of the package's samples by name: a cost model learns from them, none is searched."""
    return _files(SAMPLES)


def shipped_training_files() -> list[Path]:
    """All files of the package from which a cost model can learn."""
    return [*shipped_spaces().values(), *shipped_samples().values()]


def find_space(text: str) -> Path:
    """Find the file of a space or a sample by its name in the package or its path."""
    return (shipped_samples() | shipped_spaces()).get(text, Path(text))


def _files(directory: Path) -> dict[str, Path]:
    files = [*directory.glob("*.json"), *directory.glob("*.json.gz")]
    return dict(sorted((path.name.partition(".json")[0], path) for path in files))
