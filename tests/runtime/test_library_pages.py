"""Pages of a large library are given back while TVM copies them."""

import ctypes
import mmap
import threading
from pathlib import Path

import pytest

from tvm_droplet_ms.runtime import library_file


class _Loader:
    """Maps a library as the dynamic loader does, and waits for an advice about its pages."""

    def __init__(self, secs: float) -> None:
        self._secs, self._called = secs, threading.Event()
        self.spans: list[tuple[int, int]] = []

    def call(self, start: ctypes.c_void_p, size: ctypes.c_size_t, advice: int) -> int:
        assert advice == library_file.PAGE_OUT
        self.spans.append((start.value or 0, size.value))
        self._called.set()
        return 0

    def load_module(self, link: Path) -> bool:
        with link.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
        with content:
            return self._called.wait(self._secs)


@pytest.mark.parametrize(("size", "secs"), [(1 << 26, 30.0), (1 << 20, 0.2)])
def test_pages_are_given_back_during_the_load(
    size: int, secs: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.so"
    with path.open("wb") as file:
        file.truncate(size)
    loader = _Loader(secs)
    monkeypatch.setattr(library_file, "tvm_runtime", lambda: loader)
    monkeypatch.setattr(library_file, "_ADVISE_KERNEL", loader.call)
    before = threading.active_count()
    is_large = size == 1 << 26
    assert library_file.LibraryFile(path).module is is_large
    assert {length for _, length in loader.spans} == ({size} if is_large else set())
    assert threading.active_count() == before
