# SPDX-License-Identifier: Apache-2.0
"""Context relations of synthetic loop nests, computed by hand."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest

from tvm_droplet_ms.cost_model.features.program_features import (
    ACCESSES,
    NESTS,
    RELATIONS,
    SIZES,
    relations,
)

SIZE_COUNT = len(SIZES)


@dataclass
class Access:
    touched: np.ndarray


@dataclass
class Nest:
    iterations: np.ndarray
    accesses: list[Access]


def nest(extents: list[int], *touched: list[int]) -> Nest:
    accesses = [Access(np.array(sizes, dtype=float)) for sizes in touched]
    return Nest(np.cumprod(extents).astype(float), accesses)


def parts(features: np.ndarray) -> dict[str, np.ndarray]:
    """The first parts: the sum over all nests, and the iterations and traffic of the first."""
    rows = features[: 3 * SIZE_COUNT].reshape(3, SIZE_COUNT)
    return dict(zip(("together", "within", "traffic"), rows, strict=True))


def at(size: int) -> int:
    return int(np.flatnonzero(SIZES == size)[0])


def test_relations_match_hand_computed_values():
    """The inner loop of extent 4 touches 20 B; both loops together touch 132 B."""
    found = parts(relations([nest([4, 8], [16, 128], [4, 4])]))
    for size, within, traffic in ((16, 1, 128 + 32), (32, 4, 128 + 32), (256, 32, 128 + 4)):
        assert found["within"][at(size)] == pytest.approx(np.log2(within))
        assert found["traffic"][at(size)] == pytest.approx(np.log2(1 + traffic))
    np.testing.assert_array_equal(found["together"], found["traffic"])


def test_accesses_are_ordered_by_size():
    features = relations([nest([4, 8], [4, 4], [16, 128])])
    each = features[3 * SIZE_COUNT :][: ACCESSES * len(SIZES[::2])].reshape(ACCESSES, -1)
    assert each[0, -1] == pytest.approx(np.log2(1 + 128))
    assert each[1, -1] == pytest.approx(np.log2(1 + 4))
    assert not each[2:].any()


def test_loops_of_extent_1_are_ignored():
    """Length and values do not depend on the depth of the nest."""
    shallow = nest([4, 8], [16, 128], [4, 4])
    deep = nest([1, 4, 1, 8, 1], [4, 16, 16, 128, 128], [1, 4, 4, 4, 4])
    one, other = relations([shallow]), relations([deep])
    assert one.shape == other.shape == (RELATIONS,)
    fits = SIZES >= 32
    for name, values in parts(one).items():
        np.testing.assert_allclose(values[fits], parts(other)[name][fits])


def test_nests_are_ordered_by_iterations_and_summed():
    small, large = nest([2], [8]), nest([4, 8], [16, 128])
    features = relations([small, large])
    np.testing.assert_array_equal(features, relations([large, small]))
    assert parts(features)["together"][-1] == pytest.approx(np.log2(1 + 8 + 128))
    assert parts(features)["traffic"][-1] == pytest.approx(np.log2(1 + 128))


def test_traffic_falls_and_iterations_grow_with_cache_size():
    found = parts(relations([nest([4, 2, 8, 3], [16, 16, 128, 384], [8, 16, 16, 16])]))
    assert all(before >= after for before, after in pairwise(found["traffic"]))
    assert all(before <= after for before, after in pairwise(found["within"]))


def test_relations_of_empty_module():
    assert not relations([]).any()
    assert not relations([Nest(np.array([]), [])]).any()
    many = [nest([2], [8])] * (NESTS + 2)
    assert relations(many).shape == (RELATIONS,)
