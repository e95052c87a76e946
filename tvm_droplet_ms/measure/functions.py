# SPDX-License-Identifier: Apache-2.0
"""Checks the user's functions before the first batch."""

from collections.abc import Callable, Sequence
from typing import Any

from tvm.s_tir.meta_schedule.utils import get_global_func_with_default_on_worker

from .pool import WorkerPool, dump


def check_functions(
    pool: WorkerPool,
    timeout: float,
    initializer: Callable[[], None] | None,
    functions: Sequence[str | Callable[..., Any] | None],
) -> None:
    """Check that the workers can call the functions; close the pool if not.

    Raises ``TypeError`` if a function cannot be pickled. Raises ``TaskFailed`` if the initializer
    raises, or a function's name is not registered in the worker.
    """
    names = [function for function in functions if isinstance(function, str)]
    try:
        for function in functions:
            if callable(function):
                dump("function", function)
        if names or initializer is not None:
            pool.submit(timeout, _look_up, names).result()
    except BaseException:
        pool.close()
        raise


def _look_up(names: Sequence[str]) -> None:
    for name in names:
        get_global_func_with_default_on_worker(name, None)
