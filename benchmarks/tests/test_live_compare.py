# SPDX-License-Identifier: Apache-2.0
"""The live comparison: its layers, its methods, its command, and one run of each child."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tvm_ffi import structural_hash

from benchmarks.searches import compare_searches as compare
from benchmarks.searches import remeasuring, tuning
from benchmarks.searches.layers import ALL_LAYERS, LAYERS, make_module
from benchmarks.searches.methods import METHODS
from benchmarks.store import ResultStore, Task
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.search_strategy import SearchStrategy
from tvm_droplet_ms.bench.definition import DEFINITIONS, SAMPLED
from tvm_droplet_ms.host import host_target


def test_layers_name_the_space_that_the_shipped_model_learned_from():
    measured = {structural_hash(make().mod): name for name, make in (DEFINITIONS | SAMPLED).items()}
    found = {
        name: measured.get(structural_hash(make_module(ALL_LAYERS[name]))) for name in ALL_LAYERS
    }
    assert found == {name: layer.training_space for name, layer in ALL_LAYERS.items()}
    assert len(LAYERS) == 8


@pytest.mark.parametrize("name", METHODS)
def test_every_method_can_be_made(name: str):
    strategy = METHODS[name].strategy()
    assert isinstance(strategy, SearchStrategy) or strategy == "evolutionary"


def test_methods_alternate_within_a_layer_and_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[tuple[str, str, int]] = []

    def get(self: ResultStore, name: str, module: str, settings: dict[str, Any]) -> None:
        asked.append((settings["layer"], settings["method"], settings["seed"]))

    monkeypatch.setattr(ResultStore, "get", get)
    arguments = ["--out", str(tmp_path), "--layers", "dense", "softmax", "--seeds", "3", "4"]
    args = compare.parse_arguments([*arguments, "--methods", "evolutionary", "droplet"])
    compare.run_all(args, ResultStore(tmp_path))
    assert [layer for layer, _, _ in asked] == ["dense", "dense", "softmax", "softmax"] * 2
    assert [seed for _, _, seed in asked] == [3] * 4 + [4] * 4
    firsts = [method for _, method, _ in asked[::2]]
    assert firsts == ["evolutionary", "droplet", "droplet", "evolutionary"]


def test_code_for_another_cpu_is_tuned_and_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The kernels of an AVX2 CPU, where this machine runs them."""
    args = compare.parse_arguments(["--trials", "4", "--mcpu", "haswell"])
    settings = compare.run_settings(args, "small_dense", "droplet", 0)
    targets: list[str] = []
    monkeypatch.setattr(tuning.ms, "tune_tir", lambda _, target, *__, **___: targets.append(target))
    tuning.tune(Task(settings, tmp_path))
    builds: list[str] = []

    def build(_builder: Any, target: Any, mods: Any) -> Any:
        builds.append(target)
        return [(None, "not built")] * len(mods)

    monkeypatch.setattr(remeasuring, "_build", build)
    run = {"layer": "small_dense", "runs": [], "checkpoints": [4], "rounds": 1, "mcpu": "haswell"}
    with pytest.raises(RuntimeError, match="not built"):
        remeasuring.remeasure_layer(Task(run, tmp_path))
    assert [target.attrs["mcpu"] for target in targets + builds] == ["haswell", "haswell"]
    plain = compare.run_settings(compare.parse_arguments([]), "small_dense", "droplet", 0)
    assert "mcpu" not in plain  # Results of earlier versions are read.


@pytest.mark.parametrize(
    "trials, expected", [("16", [8, 16]), ("100", [8, 16, 32, 64, 100]), ("4", [4])]
)
def test_checkpoints_end_with_the_trials(trials: str, expected: list[int]):
    assert compare.parse_arguments(["--trials", trials]).checkpoints == expected


def test_run_is_tuned_remeasured_and_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    work = {"tuning": tuning.tune, "remeasuring": remeasuring.remeasure_layer}

    def make(self: ResultStore, path: Path, module: str, settings: dict[str, Any]) -> Any:
        result = work[module.rpartition(".")[2]](Task(settings, tmp_path))
        result |= {"settings": settings, "source": "", "finished": 0.0}
        path.write_text(json.dumps(result))
        return result

    monkeypatch.setattr(ResultStore, "_make", make)
    options = ["--layers", "small_dense", "--methods", "droplet", "--baseline", "droplet"]
    options += ["--seeds", "0", "--trials", "4", "--checkpoints", "2", "--rounds", "1"]
    assert (
        compare.main([*options, "--out", str(tmp_path), "--csv", str(tmp_path / "live.csv")]) == 0
    )
    run = json.loads((tmp_path / "small_dense-droplet-0.json").read_text())
    assert len(run["trials"]) == 4
    assert run["trials"][0]["trace"]
    (winners,) = tmp_path.glob("winners-*.json")
    ((at_two, at_four),) = json.loads(winners.read_text())["kernels"]
    assert at_two["error"] is None and at_two["median"] > 0
    assert at_four["median"] > 0
    printed = capsys.readouterr().out
    assert "| ratio " in printed and "at 4" in printed
    assert compare.main(["--records", str(tmp_path / "live.csv"), "--baseline", "droplet"]) == 0
    assert "### All layers" in capsys.readouterr().out


def test_winner_with_wrong_output_is_not_timed(monkeypatch: pytest.MonkeyPatch):
    mod = make_module(ALL_LAYERS["small_dense"])
    trace = Schedule(mod).trace.as_json()
    outputs = iter([np.zeros((64, 64)), np.ones((64, 64))])
    monkeypatch.setattr(remeasuring, "_call", lambda *_: next(outputs))
    (kernel,) = remeasuring.remeasure(mod, [trace], 1, host_target())
    assert kernel["median"] is None
    assert "computes something else" in kernel["error"]


def test_another_kernel_begins_each_round():
    order = []

    class Timer:
        def __init__(self, name: str) -> None:
            self._name = name

        def __call__(self, *buffers: Any) -> Any:
            order.append(self._name)
            return SimpleNamespace(mean=float(len(order)))

    timers = {number: Timer(name) for number, name in enumerate("abc")}
    samples = remeasuring.time_in_turns(timers, [np.zeros(2, "float32")], 2)
    assert "".join(order) == "abcbcacab"
    assert dict(samples) == {0: [6.0, 8.0], 1: [4.0, 9.0], 2: [5.0, 7.0]}
