# SPDX-License-Identifier: Apache-2.0
"""Imports only the tensor intrinsics that a target needs, so that tuning starts at once."""

import builtins
import functools
import importlib
import importlib.util
import inspect
import linecache
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import FrameType, FunctionType, ModuleType
from typing import Any

from tvm.runtime import enabled
from tvm.s_tir import Schedule, TensorIntrin
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.database import JSONDatabase, TuningRecord
from tvm.s_tir.meta_schedule.schedule_rule import (
    MultiLevelTilingTensorCore,
    MultiLevelTilingWithIntrin,
    ScheduleRule,
)
from tvm.target import Target
from tvm.target.codegen import llvm_get_system_triple
from tvm.tirx.script.parser import entry

from ..design_space.dot_products.dot_intrinsics import register_dots
from ..design_space.matrix_tiles.tile_intrinsics import register_named
from .patch import Attribute, Patch, lock

_PACKAGE = "tvm.s_tir.tensor_intrin"

# Modules in the order in which they must be loaded: rocm and arm_cpu import dot_product_common. No
# default rule asks for the dp4a of dot_product_common, but schedules for CUDA devices use it.
_OF_KIND = {
    "cuda": ("dot_product_common", "cuda"),
    "rocm": ("dot_product_common", "rocm"),
    "hexagon": ("hexagon",),
}

_OF_ARCHITECTURE = {
    ("x86", "amd64", "i386", "i486", "i586", "i686"): ("x86",),
    ("aarch64", "arm", "thumb"): ("dot_product_common", "arm_cpu"),
    ("riscv",): ("riscv_cpu",),
}


# Calls that name an intrinsic, and can be repeated if the intrinsic was not registered.
_BY_NAME: tuple[tuple[type, str], ...] = (
    (JSONDatabase, "__init__"),
    (TuningRecord, "from_json"),
    (Schedule, "tensorize"),
    (TensorIntrin, "get"),
    (ScheduleRule, "create"),
    (MultiLevelTilingWithIntrin, "__init__"),
    (MultiLevelTilingTensorCore, "__init__"),
)
_UNREGISTERED = re.compile(r"TensorIntrin '(.+?)' is not registered")  # src/tirx/ir/function.cc

_loaded: dict[str, ModuleType] = {}
_process_wide = threading.Event()  # Set from `fast_start` to `restore`.


def import_intrinsics(target: Target | str | Mapping[str, Any] | None) -> None:
    """Register only the tensor intrinsics of a target's backend.

    These include all that the target's default schedule rules name (``GetRuleKindFromTarget`` in
    ``meta_schedule/space_generator/space_generator.cc`` chooses the rules, regardless of the
    target's host). Intrinsics that are registered already stay registered. A later ``import
    tvm.s_tir.tensor_intrin`` works as usual and registers nothing twice. Several threads may call
    this at the same time, but not while another thread imports that package.

    Parameters
    ----------
    target : Target | str | Mapping[str, Any] | None
        Kinds ``cuda``, ``rocm`` and ``hexagon`` have a backend each. For ``llvm``, the architecture
        in ``mtriple``, or else the host's, chooses x86, ARM or RISC-V. Any other target, and None,
        registers the intrinsics of all backends, as ``import tvm.s_tir.tensor_intrin`` does.

    Raises
    ------
    ValueError
        Raised by TVM if `target` is not a target.
    """
    names = _modules_of(target)
    with _quick_parsing:
        if names:
            with lock:
                if _PACKAGE not in sys.modules:
                    if not any(isinstance(finder, _LoadedFinder) for finder in sys.meta_path):
                        sys.meta_path.insert(0, _LoadedFinder())
                    for name in names:
                        _load(f"{_PACKAGE}.{name}")
                    return
        # Not under the lock: another thread may hold Python's import lock and wait for this one.
        importlib.import_module(_PACKAGE)


@contextmanager
def fast_tune_contexts() -> Iterator[None]:
    """Make every ``TuneContext`` import only its own target's intrinsics, while the context lasts.

    TVM's first ``TuneContext`` imports the intrinsics of all backends, which takes 14 to 20 s.
    Inside the context, every ``TuneContext`` of this process, and so ``tune_tir`` and
    ``tune_relax``, calls `import_intrinsics` with its target instead: 0.04 s for an x86 CPU, 1.5 s
    for a CUDA device, 2 s for a target that needs all intrinsics.

    Some TVM calls name an intrinsic. If it belongs to another backend and is not registered yet,
    these calls import all intrinsics and continue: opening a ``JSONDatabase``, which replays the
    records of every target; ``TuningRecord.from_json``; ``Schedule.tensorize``;
    ``TensorIntrin.get``, unless the intrinsic may be missing; ``ScheduleRule.create``; and making
    a rule from the names of intrinsics. TVM's own code that needs more intrinsics
    (``default_build``, the GPU schedules of dlight) imports ``tvm.s_tir.tensor_intrin`` itself.

    The context also registers the intrinsics of this package's rule for byte products.

    The context replaces attributes of TVM's classes. The exit of the last context restores them;
    registered intrinsics stay registered. Contexts nest, and each thread may hold one.

    Notes
    -----
    Two ways to replay the schedule of another backend are not covered, because they are in C++:
    ``Trace.apply_to_schedule``, and ``relax.transform.MetaScheduleApplyDatabase(work_dir)`` if no
    ``JSONDatabase`` was opened on that directory. Building a CUDA module with ``mma_store`` by
    other means than ``default_build`` is not covered either. TVM's messages are
    ``TensorIntrin '...' is not registered`` and ``index_map_func.has_value()) is false``. In both
    cases, ``import tvm.s_tir.tensor_intrin`` first. Even without this context, these operations
    fail in a process that has made no ``TuneContext``. After this context, the calls listed above
    fail too, until TVM's own ``TuneContext`` or that import has registered all intrinsics.
    """
    register_dots()
    with _quick_parsing, _own_intrinsics:
        yield


def fast_start() -> None:
    """Enter `fast_tune_contexts` for the rest of the process.

    This is for scripts and programs, which own their process. A library should use ``with
    fast_tune_contexts():`` instead. A second call does nothing.

    See Also
    --------
    restore : Undoes the call.
    """
    with lock:
        if not _process_wide.is_set():
            register_dots()
            _process_wide.set()
            _quick_parsing.__enter__()
            _own_intrinsics.__enter__()


def restore() -> None:
    """Undo `fast_start`, if it was called, and restore the attributes of TVM's classes.

    Registered intrinsics stay registered. An open `fast_tune_contexts` context stays in effect.
    """
    with lock:
        if _process_wide.is_set():
            _process_wide.clear()
            _own_intrinsics.__exit__()
            _quick_parsing.__exit__()


def _lazy_attributes() -> list[Attribute]:
    """List the attributes that `fast_tune_contexts` replaces; none if all are imported."""
    if _PACKAGE in sys.modules:
        return []
    replaced: list[Attribute] = [
        (TuneContext, "__init__", _with_own_intrinsics(TuneContext.__init__))
    ]
    for owner, name in _BY_NAME:
        call: Any = _with_retry(getattr(owner, name))
        is_static = isinstance(vars(owner)[name], staticmethod)
        replaced.append((owner, name, staticmethod(call) if is_static else call))
    return replaced


def _modules_of(target: Target | str | Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the modules of a target's backend, or an empty tuple if all modules are needed."""
    # Without LLVM, the package itself imports only CUDA.
    if target is None or not enabled("llvm"):
        return ()
    described: Any = target if isinstance(target, Target) else Target(target)
    if described.kind.name != "llvm":
        return _OF_KIND.get(described.kind.name, ())
    triple = str(described.attrs.get("mtriple") or llvm_get_system_triple())
    for prefixes, names in _OF_ARCHITECTURE.items():
        if triple.startswith(prefixes):
            return names
    return ()


def _load(full_name: str) -> None:
    """Execute a module of the package without importing the package, and keep it for that import.

    The module does not stay in ``sys.modules``. If it did, importing the module would no longer
    import the package, and code that names other intrinsics may rely on the package.
    """
    if full_name in _loaded or full_name in sys.modules:
        return
    package = importlib.util.find_spec(_PACKAGE)
    assert package is not None
    spec = PathFinder.find_spec(full_name, package.submodule_search_locations)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.update(_loaded)
    sys.modules[full_name] = module
    try:
        spec.loader.exec_module(module)
        _loaded[full_name] = module
    finally:
        for name in (*_loaded, full_name):
            sys.modules.pop(name, None)


class _LoadedFinder(MetaPathFinder):
    """Passes each module that `_load` has executed to the import of the package once."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        # No lock here: Python holds its import lock, which another thread may be waiting for.
        module = _loaded.pop(fullname, None)
        return None if module is None else ModuleSpec(fullname, _LoadedLoader(module))


class _LoadedLoader(Loader):
    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._spec = module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # The import has just replaced it with the finder's spec.


def _quick_stack() -> list[inspect.FrameInfo]:
    """Return the result of ``inspect.stack`` in less time.

    ``T.prim_func`` reads the stack for every function that it parses. ``inspect.stack`` searches
    ``sys.modules`` for the module of each frame without a file, and the frames of an import have no
    file. This search takes six sevenths of the time to import the intrinsics.
    """
    stack = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file, number = frame.f_code.co_filename, frame.f_lineno
        line = linecache.getline(file, number, frame.f_globals)
        lines, index = ([line], 0) if line else (None, None)
        stack.append(inspect.FrameInfo(frame, file, number, frame.f_code.co_name, lines, index))
        frame = frame.f_back
    return stack


_quick_inspect = ModuleType(inspect.__name__, inspect.__doc__)
vars(_quick_inspect).update({**vars(inspect), "stack": _quick_stack})

_quick_parsing = Patch(lambda: [(entry, "inspect", _quick_inspect)])
_own_intrinsics = Patch(_lazy_attributes)


def _with_own_intrinsics(init: Any) -> Callable[..., None]:
    """Make ``TuneContext.__init__`` call `import_intrinsics` instead of importing the package."""

    # Copy the function so that its import statement does nothing. A stand-in for the package in
    # sys.modules would also be visible to other threads, and to the components'
    # initialize_with_tune_context.
    def import_module(name: str, *args: Any) -> Any:
        return builtins.__import__("tvm" if name == _PACKAGE else name, *args)

    namespace = {
        **init.__globals__,
        "__builtins__": {**vars(builtins), "__import__": import_module},
    }
    without_import = FunctionType(
        init.__code__, namespace, init.__name__, init.__defaults__, init.__closure__
    )
    without_import.__kwdefaults__ = init.__kwdefaults__

    @functools.wraps(init)
    def init_with_own_intrinsics(*args: Any, **kwargs: Any) -> None:
        import_intrinsics(kwargs.get("target"))
        without_import(*args, **kwargs)

    return init_with_own_intrinsics


def _with_retry(call: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a call so that it registers a missing intrinsic and runs again."""

    @functools.wraps(call)
    def call_with_retry(*args: Any, **kwargs: Any) -> Any:
        while True:
            try:
                return call(*args, **kwargs)
            # TVM wraps the error that names the intrinsic in errors of several types.
            except Exception as error:
                missing = _UNREGISTERED.search(str(error))
                if missing is None or not _register(missing.group(1)):
                    raise

    return call_with_retry


def _register(name: str) -> bool:
    """Register a missing intrinsic by its name. Returns False if that is not possible."""
    if register_named(name):
        return True
    if _PACKAGE in sys.modules:
        return False
    import_intrinsics(None)
    return True
