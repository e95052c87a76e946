# SPDX-License-Identifier: Apache-2.0
"""What is written at indices: slices, rows of a cache, sums."""

import pytest
from compiling import check, torch

from tvm_droplet_ms.session.errors import ModelError

X = torch.randn(2, 3, 7, 4)
ROWS = torch.tensor([5, 0, -1])


def put(index, shape):
    """Numbers in the place of some elements of X."""

    def written(x, values):
        x = x.clone()
        x[index] = values
        return x

    check(written, X, torch.randn(shape))


@pytest.mark.parametrize(
    ("index", "shape"),
    [
        ((slice(None), slice(None), torch.tensor([5])), (2, 3, 1, 4)),
        ((slice(None), slice(None), torch.tensor(5)), (2, 3, 4)),
        ((slice(None), slice(None), ROWS), (2, 3, 3, 4)),
        ((slice(None), slice(None), ROWS), (1, 3, 1, 4)),
        ((slice(None), torch.tensor([1, 2]), torch.tensor([3, -2])), (2, 2, 4)),
        ((torch.tensor([1]), slice(None), torch.tensor([3])), (1, 3, 4)),
        ((torch.tensor([1, 0]), slice(None), torch.tensor([3, 6])), (2, 3, 4)),
        ((torch.tensor([[0], [1]]), torch.tensor([[0, 2]])), (2, 2, 7, 4)),
        ((torch.tensor([1, 0]),), ()),
    ],
)
def test_writing_at_indices(index, shape):
    put(index, shape)


@pytest.mark.parametrize("places", [[5], [5, 0, 2]])
def test_copies_and_sums(places):
    index = torch.tensor(places)
    values = torch.randn(2, 3, len(places), 4)
    check(lambda x, v: x.index_copy(2, index, v), X, values)
    check(lambda x, v: x.index_add(2, index, v), X, values)


def test_sums_at_equal_indices():
    index = (None, torch.tensor([1, 1, 2]))
    check(lambda x, v: torch.ops.aten.index_put(x, index, v, True), X, torch.randn(2, 3, 7, 4))


def test_no_indices():
    put((slice(None), torch.zeros(0, dtype=torch.int64)), (2, 0, 7, 4))


def test_flags():
    index = torch.tensor([1])
    mask, values = torch.tensor([True, False, False]), torch.tensor([True])
    check(lambda x, v: torch.ops.aten.index_put(x, [index], v, True), mask, values)


@pytest.mark.parametrize(("axis", "shape"), [(2, (2, 2, 4)), (0, (2, 3, 2)), (1, (2, 2, 3))])
def test_scattering_at_fewer_indices(axis, shape):
    """The values may be more than the indices."""
    x, values = torch.zeros(2, 3, 4), torch.randn(2, 3, 4)
    places = torch.zeros(shape, dtype=torch.int64)
    check(lambda x, v: x.scatter_add(axis, places, v), x, values)
    check(lambda x: x.scatter(axis, places, 2.5), x)


def test_one_value_at_a_mask():
    def written(x, y):
        x, y = x.clone(), y.clone()
        x[x > 0] = 2.0
        y[y[:, 0] > 0] = -1.0
        return x, y

    check(written, torch.randn(2, 5, 3), torch.randn(4, 3))


def test_values_at_a_mask_are_refused_by_name():
    def written(x, values):
        x = x.clone()
        x[x > 0] = values
        return x

    with pytest.raises(ModelError, match="torch.where"):
        check(written, torch.tensor([1.0, -1.0, 2.0]), torch.tensor([5.0, 6.0]))


def test_an_element_at_a_tensor_is_refused_by_name():
    with pytest.raises(ModelError, match="index_select"):
        check(lambda x, i: x[:, i], torch.randn(2, 5, 3), torch.tensor(3))
