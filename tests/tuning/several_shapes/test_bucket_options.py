# SPDX-License-Identifier: Apache-2.0
"""The options of several shapes, and what is refused."""

import numpy as np
import pytest

from tvm_droplet_ms.cli.arguments import dim, shape, shares
from tvm_droplet_ms.cli.options import OptionError, by_bucket
from tvm_droplet_ms.session.errors import ModelError
from tvm_droplet_ms.tuning.several_shapes.bucket_options import bucket_options


def test_one_shape_is_one_bucket():
    (bucket,) = bucket_options({"x": (1, 3)}, None)
    assert (bucket.shapes, bucket.dims, bucket.share) == ({"x": (1, 3)}, None, 1.0)


def test_a_mapping_holds_for_all_buckets():
    first, second = bucket_options({"x": (1, 3)}, [{"n": 4}, {"n": 16}], [3, 1])
    assert first.shapes == second.shapes == {"x": (1, 3)}
    assert [first.dims, second.dims] == [{"n": 4}, {"n": 16}]
    assert [first.share, second.share] == [0.75, 0.25]
    assert second.size == 4 * first.size


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (([{}, {}], [{}], None), "the lists have 2 of shapes, 1 of dims"),
        (([{}, {}], None, [1.0]), "2 of shapes, 1 of shares"),
        (([{"x": (1,)}, {"x": (2,)}], None, np.array([1.0])), "2 of shapes, 1 of shares"),
        (([{"x": (1,)}, {"x": (2,)}], None, 0.5), "2 of shapes, 1 of shares"),
        ((None, [{"n": 64}, {"n": "two"}]), "dims gives 'n' the extent 'two'"),
        (([{"x": (64,)}, {"x": 5}], None), "shapes gives 'x' the shape 5"),
        ((None, [{"n": 64}, {"n": 64}]), "two of the shapes have the extents {'n': 64}"),
        (([], None, None), "shapes is empty"),
        (([{}, 3], None, None), "shapes has the entry 3"),
        (([{"x": (1,)}, {"x": (2,)}], None, [1.0, 0.0]), "shares has 0.0"),
        (([{"x": (1,)}, {"x": (2,)}], None, [1.0, "x"]), "shares has 'x'"),
        (({"x": (1,)}, None, [1.0]), "shares is a list, and there is one shape"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(options, message):
    with pytest.raises(ModelError, match=message):
        bucket_options(*options)


def test_extents_to_try_lie_between_those_of_the_buckets():
    """Each alone smaller by one, and all together at three places; equal axes are one extent."""
    first, second = bucket_options(None, [{"n": 4, "m": 8, "k": 3}, {"n": 9, "m": 32, "k": 3}])
    found = [(one.dims["n"], one.dims["m"]) for one in second.between([first, second])]
    assert found == [(8, 32), (9, 31), (5, 9), (6, 20), (8, 31)]
    assert all(one.dims["k"] == 3 for one in second.between([first, second]))
    first, second = bucket_options([{"x": (1, n), "y": (n, 1)} for n in (1, 4)], None)
    tried = [one.shapes for one in second.between([first, second])]
    assert tried == [{"x": (1, 2), "y": (2, 1)}, {"x": (1, 3), "y": (3, 1)}]
    assert not list(first.between([first, second]))


def test_an_extent_without_one_between_is_tried_alone():
    """Of (2, 2) beside (1, 1) there is (1, 2) and (2, 1), although nothing is between 1 and 2."""
    first, second = bucket_options(None, [{"n": 1, "m": 1}, {"n": 2, "m": 2}])
    tried = [one.dims for one in second.between([first, second])]
    assert tried == [{"n": 1, "m": 2}, {"n": 2, "m": 1}]


def test_shares_may_be_an_array():
    buckets = bucket_options([{"x": (1,)}, {"x": (2,)}], None, np.array([1, 3]))
    assert [bucket.share for bucket in buckets] == [0.25, 0.75]


def test_the_command_line_has_a_bar_between_shapes():
    pairs = [shape("x=1,16|1,64"), shape("y=3")]
    assert by_bucket("--shape", pairs) == [{"x": (1, 16), "y": (3,)}, {"x": (1, 64), "y": (3,)}]
    assert by_bucket("--shape", [shape("x=1,16")]) == {"x": (1, 16)}
    assert by_bucket("--dim", [dim("n=16|64"), dim("m=2")]) == [
        {"n": 16, "m": 2},
        {"n": 64, "m": 2},
    ]
    assert by_bucket("--dim", [dim("n=16")]) == {"n": 16}
    assert shares("3,1") == [3.0, 1.0]


def test_a_resumed_command_reads_its_options_from_json():
    assert by_bucket("--shape", [["x", [[1, 16], [1, 64]]]]) == [{"x": [1, 16]}, {"x": [1, 64]}]
    assert by_bucket("--shape", [["x", [1, 16]]]) == {"x": [1, 16]}
    assert by_bucket("--dim", [["n", [16, 64]]]) == [{"n": 16}, {"n": 64}]


def test_of_a_repeated_name_the_last_counts():
    assert by_bucket("--dim", [dim("n=16"), dim("n=16|64")]) == [{"n": 16}, {"n": 64}]
    assert by_bucket("--dim", [dim("n=16|64"), dim("n=8")]) == {"n": 8}


def test_other_numbers_of_shapes_are_refused():
    with pytest.raises(OptionError, match="--shape has 2 for x, 3 for y: give as many for each"):
        by_bucket("--shape", [shape("x=1|2"), shape("y=1|2|3")])
