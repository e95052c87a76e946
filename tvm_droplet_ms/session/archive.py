# SPDX-License-Identifier: Apache-2.0
"""Archives that models and training data are kept in. Imports no TVM."""

import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np

READ_ERRORS = (
    *(OSError, EOFError, ValueError, KeyError, NotImplementedError),
    *(zipfile.BadZipFile, zlib.error, struct.error),
)
"""Errors of reading a ZIP archive, or NumPy's ``.npz``, that is missing or damaged."""


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write a file so that it is complete or absent.

    ``path``: the file; missing directories are made. Yields the file to write, which takes the
    place of ``path`` at the end, and is removed after an error.
    """
    partial = Path(f"{os.fspath(path)}.partial")
    partial.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def load_arrays(file: IO[bytes]) -> dict[str, np.ndarray]:
    """Read all arrays of a ``.npz`` file.

    Raises ``READ_ERRORS`` if it is damaged or holds something else, also Python objects.
    """
    loaded = np.load(file, allow_pickle=False)
    # np.load reads a single array, .npy, too.
    if isinstance(loaded, np.ndarray):
        raise ValueError("it holds a single array, expected a .npz archive")
    return {name: loaded[name] for name in loaded.files}
