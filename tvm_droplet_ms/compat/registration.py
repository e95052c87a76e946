# SPDX-License-Identifier: Apache-2.0
"""Registers this package's names with TVM, without importing TVM."""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

PIPELINE_NAME = "droplet_tuning"
"""The name of ``droplet_tuning_pipeline`` for ``relax.get_pipeline``."""

_GLOBAL_FUNCTIONS = {
    "tvm_droplet_ms.DropletStrategy": "tvm_droplet_ms.search_strategy.droplet",
    "tvm_droplet_ms.find_draft": "tvm_droplet_ms.cost_model.found_by_name",
    "tvm_droplet_ms.find_prior": "tvm_droplet_ms.cost_model.found_by_name",
    "tvm_droplet_ms.known_schedules": "tvm_droplet_ms.tuning.experience.shipped_schedules",
    "tvm_droplet_ms.roofline": "tvm_droplet_ms.session.roofline",
}
"""The global functions of this package, and the modules that register them."""

_TVM_PIPELINES = "tvm.relax.pipeline"


def register_with_tvm() -> None:
    """Register the Relax pipeline and the global functions, at once or as soon as TVM is imported.

    The registered functions import the rest of this package when they are first called. So neither
    ``import tvm`` nor ``import tvm_droplet_ms`` takes longer, and their order does not matter.
    TVM raises ``ValueError`` if another package has registered a pipeline of the same name.
    """
    if _TVM_PIPELINES in sys.modules:
        _register()
    elif not any(isinstance(finder, _RegisterAfterImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _RegisterAfterImport())


class _RegisterAfterImport(MetaPathFinder):
    """Calls `_register` after Python has executed TVM's module of pipelines."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _TVM_PIPELINES:
            return None
        spec = self._spec_of_others(fullname, path, target)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_register(module: ModuleType) -> None:
            execute(module)
            # Not before the import: the spec may be requested without an import.
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            _register()

        setattr(spec.loader, "exec_module", execute_and_register)
        return spec

    def _spec_of_others(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        for finder in sys.meta_path:
            if not isinstance(finder, _RegisterAfterImport):
                spec = finder.find_spec(fullname, path, target)
                if spec is not None:
                    return spec
        return None


def _register() -> None:
    pipelines = import_module(_TVM_PIPELINES)
    if pipelines.PIPELINE_MAP.get(PIPELINE_NAME) is not _droplet_tuning:
        pipelines.register_pipeline(PIPELINE_NAME)(_droplet_tuning)
    ffi = import_module("tvm_ffi")
    for name, module in _GLOBAL_FUNCTIONS.items():
        if ffi.get_global_func(name, allow_missing=True) is None:
            ffi.register_global_func(name, _imported_when_called(name, module))


def _droplet_tuning(*arguments: Any, **options: Any) -> Any:
    """Call ``tvm_droplet_ms.droplet_tuning_pipeline``, which has the documentation."""
    return import_module("tvm_droplet_ms.relax").droplet_tuning_pipeline(*arguments, **options)


def _imported_when_called(name: str, module: str) -> Callable[..., Any]:
    """Make a placeholder that imports the module that replaces it, and calls the replacement."""

    def import_and_call(*arguments: Any) -> Any:
        import_module(module)
        return import_module("tvm_ffi").get_global_func(name)(*arguments)

    return import_and_call
