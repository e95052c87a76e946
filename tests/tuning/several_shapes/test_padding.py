# SPDX-License-Identifier: Apache-2.0
"""The bucket of an input, and what is padded and cut, by hand."""

import numpy as np
import pytest

from tvm_droplet_ms.runtime.shapes import Bucket, Buckets, cut, padded


def of_lengths(*lengths: int, outputs=lambda n: ((2, n, 8),)) -> Buckets:
    """Buckets of two inputs of some lengths: indices (2, n) and a mask (2, n, 4)."""
    return Buckets(tuple(Bucket(((2, n), (2, n, 4)), outputs(n)) for n in lengths))


@pytest.mark.parametrize(
    ("length", "pads", "expected"),
    [
        (16, False, 0),
        (64, True, 1),
        (15, False, None),
        (15, True, 0),
        (17, True, 1),
        (65, True, None),
    ],
)
def test_the_smallest_bucket_that_holds_the_inputs(length, pads, expected):
    assert of_lengths(16, 64).find(((2, length), (2, length, 4)), pads=pads) == expected


def test_the_order_of_the_buckets_does_not_matter():
    assert of_lengths(64, 16, 32).find(((2, 9), (2, 9, 4)), pads=True) == 1


def test_an_axis_that_is_the_same_in_all_buckets_is_not_padded():
    buckets = of_lengths(16, 64)
    assert buckets.find(((1, 15), (1, 15, 4)), pads=True) is None
    assert buckets.find(((2, 15), (2, 15, 3)), pads=True) is None


def test_axes_of_one_extent_in_all_buckets_are_one_extent():
    """Otherwise an output might be cut by the wrong one."""
    assert of_lengths(16, 64).find(((2, 15), (2, 14, 4)), pads=True) is None


def test_inputs_of_another_rank_have_no_bucket():
    assert of_lengths(16, 64).find(((2, 15), (2, 15)), pads=True) is None


def test_an_output_is_cut_at_the_axis_of_the_inputs_extent():
    cuts = of_lengths(16, 64).cuts()
    assert cuts == {(0, 1): (0, 1)}
    output = np.arange(2 * 64 * 8).reshape(2, 64, 8)
    (found,) = cut([output], cuts, ((2, 15), (2, 15, 4)))
    np.testing.assert_array_equal(found, output[:, :15])


def test_an_output_of_fixed_extents_stays():
    buckets = of_lengths(16, 64, outputs=lambda n: ((2, 8),))
    assert buckets.cuts() == {}
    (found,) = cut([np.ones((2, 8))], {}, ((2, 15), (2, 15, 4)))
    assert found.shape == (2, 8)


def test_an_output_whose_extent_is_no_inputs_cannot_be_cut():
    assert of_lengths(16, 64, outputs=lambda n: ((2, n // 2),)).cuts() is None


def test_shapes_of_other_ranks_are_not_padded():
    buckets = Buckets((Bucket(((4, 8),), ((4, 8),)), Bucket(((1, 8),), ((8,),))))
    assert buckets.cuts() is None
    assert Buckets((Bucket(((4,),), ()), Bucket(((4, 1),), ()))).open_axes == []


def test_a_scalar_stays_an_array():
    (found,) = padded([np.full((), 3.0)], ((),))
    (output,) = cut([found], {}, ((),))
    assert isinstance(output, np.ndarray) and output == 3.0


def test_noise_is_put_behind_floats_alone():
    arrays = [np.ones((1, 2), "float32"), np.ones(1, "int64")]
    floats, integers = padded(arrays, ((3, 2), (4,)), np.random.default_rng(0))
    assert (floats[:1] == 1).all() and (floats[1:] != 0).all()
    assert integers.tolist() == [1, 0, 0, 0]


def test_zeros_are_put_behind():
    (found,) = padded([np.array([[1, 2], [3, 4]])], ((2, 3),))
    np.testing.assert_array_equal(found, [[1, 2, 0], [3, 4, 0]])
