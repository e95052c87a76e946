# SPDX-License-Identifier: Apache-2.0
"""Compiled graphs are timed in turns, in a process that has loaded nothing else."""

import os
import threading

import numpy as np
import pytest
import small_models

import tvm
from tvm import relax
from tvm_droplet_ms.measure import TaskFailed
from tvm_droplet_ms.tuning.compile.compiled_model import CompiledModel
from tvm_droplet_papers.graph.graph_timing import FEWEST_ROUNDS, MOST_ROUNDS, time_graphs


def products(count):
    """A model that multiplies by one matrix so many times."""
    weights = small_models.Weights()
    matrix = weights(128, 128)

    def body(emit, x):
        for _ in range(count):
            x = emit(relax.op.matmul(x, matrix))
        return x

    mod = relax.get_pipeline("zero")(small_models.module([(128, 128)], body))
    return CompiledModel(relax.build(mod, tvm.target.Target("llvm")))


IMAGE = np.zeros((128, 128), "float32")


def test_more_work_takes_longer_in_the_same_rounds():
    graphs = {"eight": products(8), "one": products(1), "again": products(1)}
    secs = time_graphs(graphs, [IMAGE])
    assert list(secs) == list(graphs)
    rounds = len(secs["one"])
    assert FEWEST_ROUNDS <= rounds <= MOST_ROUNDS
    assert {len(each) for each in secs.values()} == {rounds}
    # Eight products take eight times as long, but for what other processes take.
    assert 4 < min(secs["eight"]) / min(secs["one"]) < 16
    assert 0.5 < min(secs["again"]) / min(secs["one"]) < 2


class Broken:
    """A graph whose library cannot be loaded."""

    def export(self, path):
        with open(path, "wb") as file:
            file.write(b"no library")


def test_a_library_that_cannot_be_loaded_is_a_failed_task():
    with pytest.raises(TaskFailed, match="Failed to load dynamic shared library"):
        time_graphs({"broken": Broken()}, [IMAGE])


def test_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = threading.active_count()
    time_graphs({"one": products(1)}, [IMAGE])
    assert not os.listdir(tmp_path)
    assert threading.active_count() <= before + 1
