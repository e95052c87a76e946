# SPDX-License-Identifier: Apache-2.0
"""PaCM, Pruner's pattern-aware cost model: attention over a program's data movements.

After "Pruner: A Draft-then-Verify Exploration Mechanism to Accelerate Tensor Program Tuning" (Liu
et al., ASPLOS 2025). One branch encodes each statement by itself and sums the states. Another lets
the data movements attend to each other and sums the states. A head scores both sums. The paper
normalizes by the statistics of a batch, which makes scores depend on each other. This network
normalizes each program by itself. Imports no TVM.
"""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np

from tvm_droplet_ms.cost_model.features.store_features import PER_STORE
from tvm_droplet_ms.cost_model.model_file import ModelKind

from .dataflow import LEVELS, STATEMENTS, TOKEN_WIDTH, TOKENS
from .network_model import NetworkModel, load_trainer

TOKEN_HIDDEN = 32
"""Width of a data movement's state."""

HEADS = 4
"""Heads of the attention."""

STATEMENT_HIDDEN = 64
"""Width of a statement's state."""

HIDDEN = 96
"""Width of the head's states."""

_STATES = STATEMENT_HIDDEN + TOKEN_HIDDEN

_SMALL, _FAR = 1e-5, 1e9


def shapes(statement_width: int) -> dict[str, tuple[int, ...]]:
    """The shapes of the learned parameters.

    ``statement_width``: the number of features of a statement, including its flag.
    """
    return {
        "token_1": (TOKEN_WIDTH, TOKEN_HIDDEN),
        "token_1_bias": (TOKEN_HIDDEN,),
        "token_2": (TOKEN_HIDDEN, TOKEN_HIDDEN),
        "token_2_bias": (TOKEN_HIDDEN,),
        "attention": (TOKEN_HIDDEN, 3 * TOKEN_HIDDEN),
        "attention_out": (TOKEN_HIDDEN, TOKEN_HIDDEN),
        "statement_1": (statement_width, STATEMENT_HIDDEN),
        "statement_1_bias": (STATEMENT_HIDDEN,),
        "statement_2": (STATEMENT_HIDDEN, STATEMENT_HIDDEN),
        "statement_2_bias": (STATEMENT_HIDDEN,),
        "head_1": (_STATES, HIDDEN),
        "head_1_bias": (HIDDEN,),
        "head_2": (HIDDEN, HIDDEN),
        "head_2_bias": (HIDDEN,),
        "output": (HIDDEN, 1),
        "output_bias": (1,),
    }


def fixed_shapes(statement_width: int) -> dict[str, tuple[int, ...]]:
    """The shapes of the parameters that are fixed by the training data."""
    return {
        "token_mean": (TOKEN_WIDTH,),
        "token_scale": (TOKEN_WIDTH,),
        "statement_mean": (statement_width,),
        "statement_scale": (statement_width,),
    }


def split(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split features into the data movements and the statements of programs.

    ``features``: features of ``DataFlow`` or ``DataFlowStores``, of shape ``(programs, width)``.
    Returns ``tokens``: array of shape ``(programs, TOKENS, TOKEN_WIDTH)``; ``statements``: array of
    shape ``(programs, STATEMENTS, statement width)``. Raises ``ValueError`` if the width fits
    neither.
    """
    width = features.shape[1] - TOKENS * TOKEN_WIDTH
    if width <= STATEMENTS or width % STATEMENTS:
        raise ValueError(
            f"programs have {features.shape[1]} features, expected {TOKENS} data movements of "
            f"{TOKEN_WIDTH} and {STATEMENTS} statements"
        )
    tokens = features[:, : TOKENS * TOKEN_WIDTH].reshape(-1, TOKENS, TOKEN_WIDTH)
    return tokens, features[:, TOKENS * TOKEN_WIDTH :].reshape(-1, STATEMENTS, width // STATEMENTS)


def states(parameters: Mapping[str, Any], tokens: Any, statements: Any, xp: Any) -> Any:
    """The head's last states for programs, as NumPy or JAX arrays.

    ``parameters``: parameters of ``shapes``, and the means and the scales of the inputs.
    ``tokens``, ``statements``: as ``split`` returns them; empty rows may be omitted. ``xp``:
    ``numpy`` or ``jax.numpy``. Returns an array of shape ``(programs, HIDDEN)``.
    """
    given = parameters
    present = tokens[:, :, : len(LEVELS)].sum(axis=2)
    moved = (tokens - given["token_mean"]) / given["token_scale"]
    moved = xp.maximum(moved @ given["token_1"] + given["token_1_bias"], 0.0)
    moved = xp.maximum(moved @ given["token_2"] + given["token_2_bias"], 0.0)
    moved = _normal(moved + _attend(given, moved, present, xp), xp)
    flow = (moved * present[:, :, None]).sum(axis=1)
    computed = (statements - given["statement_mean"]) / given["statement_scale"]
    computed = xp.maximum(computed @ given["statement_1"] + given["statement_1_bias"], 0.0)
    computed = xp.maximum(computed @ given["statement_2"] + given["statement_2_bias"], 0.0)
    work = (computed * statements[:, :, :1]).sum(axis=1)
    both = xp.concatenate([_normal(work, xp), _normal(flow, xp)], axis=1)
    hidden = xp.maximum(both @ given["head_1"] + given["head_1_bias"], 0.0)
    return hidden + xp.maximum(hidden @ given["head_2"] + given["head_2_bias"], 0.0)


def _attend(given: Mapping[str, Any], moved: Any, present: Any, xp: Any) -> Any:
    """The attention of each movement to the movements that are present."""
    programs, count, _ = moved.shape
    heads = (moved @ given["attention"]).reshape(programs, count, 3 * HEADS, -1)
    heads = xp.swapaxes(heads, 1, 2)
    query, key, value = heads[:, :HEADS], heads[:, HEADS : 2 * HEADS], heads[:, 2 * HEADS :]
    likeness = query @ xp.swapaxes(key, 2, 3) * (TOKEN_HIDDEN // HEADS) ** -0.5
    # If no movement is present, the caller's sum over present movements is empty anyway.
    likeness = likeness - _FAR * (1.0 - present[:, None, None, :])
    weights = xp.exp(likeness - xp.amax(likeness, axis=3, keepdims=True))
    weights = weights / weights.sum(axis=3, keepdims=True)
    taken = xp.swapaxes(weights @ value, 1, 2).reshape(programs, count, TOKEN_HIDDEN)
    return taken @ given["attention_out"]


def _normal(values: Any, xp: Any) -> Any:
    """Normalize each row to mean 0 and variance 1."""
    centered = values - values.mean(axis=-1, keepdims=True)
    return centered / xp.sqrt((centered**2).mean(axis=-1, keepdims=True) + _SMALL)


class PatternAware(NetworkModel):
    """A trained network of attention over data movements; see ``states``."""

    @property
    def kind(self) -> ModelKind:
        """The kind of the model, which the width of its statements tells."""
        width = self.parameters["statement_1"].shape[0]
        return "pacm-stores" if width == 1 + PER_STORE else "pacm"

    @staticmethod
    def trainer() -> ModuleType:
        """The module ``training``; ``ImportError`` if JAX is not installed."""
        return load_trainer("PaCM", "pacm")

    @staticmethod
    def _check(features: np.ndarray) -> None:
        split(features[:0])

    def _embed(self, features: np.ndarray) -> np.ndarray:
        tokens, statements = split(features)
        # Drop trailing rows that are empty in the whole batch, to save time.
        present = np.flatnonzero(tokens[:, :, : len(LEVELS)].any(axis=(0, 2)))
        computed = np.flatnonzero(statements[:, :, 0].any(axis=0))
        kept = tokens[:, : present.max(initial=0) + 1], statements[:, : computed.max(initial=0) + 1]
        return np.asarray(states(self.parameters, *kept, np))

    @staticmethod
    def _shapes(found: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        width = found.get("statement_mean", (0,))[0]
        return shapes(width) | fixed_shapes(width)
