# SPDX-License-Identifier: Apache-2.0
"""The options of several shapes, and what is refused."""

import pytest

from tvm_droplet_ms.cli.arguments import dim, shape, shares
from tvm_droplet_ms.cli.tune_options import OptionError, by_bucket
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
        (([], None, None), "shapes is an empty list"),
        (([{}, 3], None, None), "shapes has the entry 3"),
        (([{}, {}], None, [1.0, 0.0]), "shares has 0.0"),
        (([{}, {}], None, [1.0, "x"]), "shares has 'x'"),
        (({"x": (1,)}, None, [1.0]), "shares is a list, and there is one shape"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(options, message):
    with pytest.raises(ModelError, match=message):
        bucket_options(*options)


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


def test_other_numbers_of_shapes_are_refused():
    with pytest.raises(OptionError, match="--shape has 2 for x, 3 for y: give as many for each"):
        by_bucket("--shape", [shape("x=1|2"), shape("y=1|2|3")])
