# SPDX-License-Identifier: Apache-2.0

"""Networks that train for a few steps, and JAX that is not installed."""

import sys
from pathlib import Path

import pytest

# Tasks are shared with the tests of the package's cost models.
sys.path.append(str(Path(__file__).parents[3] / "tests" / "cost_model"))
TRAINING = "tvm_droplet_papers.cost_models.training"


@pytest.fixture
def short_training(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    monkeypatch.setattr(f"{TRAINING}.EPOCHS", 1)
    monkeypatch.setattr(f"{TRAINING}.MIN_STEPS", 10)


@pytest.fixture
def no_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    monkeypatch.delitem(sys.modules, TRAINING, False)
