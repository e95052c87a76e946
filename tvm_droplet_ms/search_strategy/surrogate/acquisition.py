# SPDX-License-Identifier: Apache-2.0
"""Expected improvement, and batch selection by it. Imports no TVM."""

from collections.abc import Generator

import numpy as np
from scipy import special

from .gaussian_process import Prediction


def expected_improvement(mean: np.ndarray, deviation: np.ndarray, best: float) -> np.ndarray:
    """The expected decrease below the smallest value so far (Jones et al., 1998, equation 15).

    ``mean``, ``deviation``: posterior means and positive standard deviations.
    """
    normal = (best - mean) / deviation
    density = np.exp(-0.5 * normal**2) / np.sqrt(2.0 * np.pi)
    return np.asarray(deviation * (normal * special.ndtr(normal) + density))


def by_expected_improvement(prediction: Prediction, best: float) -> Generator[int, bool, None]:
    """Choose points one by one, each as if the earlier points had come out as predicted.

    This is the Kriging believer of Ginsbourger et al. ("Kriging Is Well-Suited to Parallelize
    Optimization", 2010), which keeps a batch from crowding around one promising point.
    ``prediction``: the prediction for the points to choose from. ``best``: the smallest value so
    far. Yields the index of a point, and is sent whether the point will be measured. If so, it is
    added to the prediction.
    """
    left = np.ones(len(prediction.mean), dtype=bool)
    while left.any():
        improvement = expected_improvement(prediction.mean, prediction.deviation, best)
        improvement = np.where(left, improvement, -1.0)
        chosen = int(np.argmax(improvement))
        left[chosen] = False
        if (yield chosen):
            best = min(best, float(prediction.mean[chosen]))
            prediction.believe(chosen)
