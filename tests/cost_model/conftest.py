# SPDX-License-Identifier: Apache-2.0

"""Networks that train for a few steps, and JAX that is not installed."""

import sys

import pytest

TRAININGS = [
    f"tvm_droplet_ms.cost_model.{network}.training" for network in ("pattern_aware", "tree_gru")
]


@pytest.fixture
def short_training(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    for name in TRAININGS:
        monkeypatch.setattr(f"{name}.EPOCHS", 1)
        monkeypatch.setattr(f"{name}.MIN_STEPS", 10)


@pytest.fixture
def no_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    for name in TRAININGS:
        monkeypatch.delitem(sys.modules, name, False)
