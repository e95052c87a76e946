# SPDX-License-Identifier: Apache-2.0
"""Arguments that builders, runners and pools refuse, and that no process is left then."""

import gc
import math
import re
import threading

import pytest
from measuring import our_processes, raise_error, wait_until

from tvm_droplet_ms.measure import (
    PromptRunner,
    TaskFailed,
    WarmBuilder,
    WorkerPool,
    fast_measure,
)

LOCK = threading.Lock()
FUNCTIONS = [
    *((WarmBuilder, name) for name in ("f_build", "f_export")),
    *((PromptRunner, name) for name in ("f_alloc_argument", "f_run_evaluator", "f_cleanup")),
]


@pytest.fixture(autouse=True)
def no_process_is_left():
    before = our_processes()
    yield
    gc.collect()
    wait_until(lambda: our_processes() <= before)


@pytest.mark.parametrize(
    ("make", "argument", "value"),
    [
        (WarmBuilder, "timeout_sec", 0),
        (WarmBuilder, "timeout_sec", -1.0),
        (WarmBuilder, "max_workers", 0),
        (PromptRunner, "timeout_sec", math.nan),
        (PromptRunner, "hopeless", 1.0),
        (PromptRunner, "hopeless", math.nan),
        (PromptRunner, "near_best", 0.0),
        (PromptRunner, "alloc_repeat", 0),
        (PromptRunner, "cooldown_sec", -0.5),
        (PromptRunner, "near_best_repeats", -1),
        (PromptRunner, "cpus", frozenset()),
        (WorkerPool, "workers", 0),
    ],
)
def test_numbers_out_of_range_are_named(make, argument, value):
    name = "workers" if argument == "max_workers" else argument
    with pytest.raises(ValueError, match=re.escape(f"{name} = {value}, expected")):
        make(**{argument: value})


@pytest.mark.parametrize(
    ("target", "options", "words"),
    [
        (
            word,
            {},
            rf"target '{word}' is not known to TVM: expected a kind such as 'llvm', or .*\}}'$",
        )
        for word in ("haswell", "llvm-haswell", "llvm -mcpu=haswell", "no such target", "")
    ]
    + [
        ({"kind": "llvm", "no_such_option": 1}, {}, "option 'no_such_option'.*; expected such as"),
        ('{"kind": "llvm", "mcpu": 3}', {}, r"'mcpu': expected type 'str' but got 'int'; expected"),
        ("llvm", {"timeout_sec": 0}, "timeout_sec = 0, expected"),
    ],
)
def test_fast_measure_refuses(target, options, words):
    with pytest.raises(ValueError, match=words):
        fast_measure(target, process_wide=False, **options)


@pytest.mark.parametrize(("make", "argument"), [*FUNCTIONS, (PromptRunner, "initializer")])
def test_functions_that_cannot_be_pickled(make, argument):
    with pytest.raises(TypeError, match=r"cannot be sent to a worker process.*Expected"):
        make(**{argument: lambda *_: LOCK})


@pytest.mark.parametrize(("make", "argument"), FUNCTIONS)
def test_names_of_functions_that_are_not_registered(make, argument):
    with pytest.raises(TaskFailed, match=r"(?s)no\.such\.function.*not registered"):
        make(**{argument: "no.such.function"})


@pytest.mark.parametrize("make", [WarmBuilder, PromptRunner])
def test_initializers_that_raise(make):
    with pytest.raises(TaskFailed, match="ValueError: the fault of this test"):
        make(initializer=raise_error)
