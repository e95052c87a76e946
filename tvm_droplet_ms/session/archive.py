# SPDX-License-Identifier: Apache-2.0
"""Archives of models and training data. Imports no TVM."""

import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

READ_ERRORS = (
    *(OSError, EOFError, ValueError, KeyError, NotImplementedError),
    *(zipfile.BadZipFile, zlib.error, struct.error),
)
"""Errors that reading a missing or damaged ZIP archive or ``.npz`` file may raise."""


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write a file so that it is complete or absent.

    ``path``: the file; missing directories are made. Yields the temporary file to write, which
    replaces ``path`` at the end, and is removed after an error.
    """
    partial = Path(f"{os.fspath(path)}.partial")
    partial.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def load_arrays(file: IO[bytes]) -> "dict[str, np.ndarray]":
    """Read all arrays of a ``.npz`` file.

    Raises one of ``READ_ERRORS`` if the file is damaged or holds anything but arrays, such as
    Python objects.
    """
    import numpy as np  # Commands that read no arrays start without it.

    loaded = np.load(file, allow_pickle=False)
    # np.load also reads a single array (.npy).
    if isinstance(loaded, np.ndarray):
        raise ValueError("it holds a single array, expected a .npz archive")
    return {name: loaded[name] for name in loaded.files}
