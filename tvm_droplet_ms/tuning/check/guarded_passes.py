# SPDX-License-Identifier: Apache-2.0
"""Graph passes that leave a module unchanged if they raise."""

import logging
from collections.abc import Callable, Iterable

import tvm
from tvm.ir import IRModule
from tvm.ir.transform import Pass

logger = logging.getLogger(__name__)

NamedPass = tuple[str, Pass]


def guarded(passes: Iterable[NamedPass], note: Callable[[str], None]) -> list[NamedPass]:
    """Wrap passes so that they leave the module unchanged if they raise.

    ``note`` is called once for each such pass. Without the pass, the model can still be tuned; it
    is only slower.
    """
    noted: set[str] = set()

    def guard(name: str, step: Pass) -> Pass:
        alone = tvm.transform.Sequential([step])

        def run(mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
            try:
                return alone(mod)
            except Exception as error:
                logger.info("the graph pass %s raised", name, exc_info=True)
                if name not in noted:
                    noted.add(name)
                    note(f"the graph pass {name} raised {_said(error)} and was left out")
                return mod

        return tvm.transform.module_pass(run, opt_level=0, name=name)

    return [(name, guard(name, step)) for name, step in passes]


def _said(error: Exception) -> str:
    """Return the type of an error and the start of its message."""
    text = " ".join(str(error).split())
    return type(error).__name__ + (f" ({text[:120]})" if text else "")
