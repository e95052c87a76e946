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


def test_several_values_at_a_mask():
    """As many as the mask has places: its values go there in order."""

    def written(x, mask, of_row, values, rows):
        x, y, z = x.clone(), x.clone(), x.clone()
        x[mask] = values
        y[of_row] = rows
        z[of_row] = rows[:1]
        return x, y, z

    mask = torch.zeros(4, 3, dtype=torch.bool)
    mask[[0, 1, 1, 3], [2, 0, 1, 1]] = True
    of_row = torch.tensor([True, False, False, True])
    check(written, torch.randn(4, 3), mask, of_row, torch.randn(4), torch.randn(2, 3))


def test_a_mask_behind_the_first_axis_is_refused_by_name():
    def written(x, mask):
        x = x.clone()
        x[:, mask] = 1.0
        return x

    with pytest.raises(ModelError, match="torch.where"):
        check(written, torch.randn(2, 3), torch.tensor([True, False, True]))


@pytest.mark.parametrize("place", [3, 0, -1, -5])
def test_an_element_at_a_tensor(place):
    check(lambda x, i: x[:, i] * 2, torch.randn(2, 5, 3), torch.tensor(place))
