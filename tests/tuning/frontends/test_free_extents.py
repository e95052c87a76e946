# SPDX-License-Identifier: Apache-2.0
"""Extents of inputs: what is asked for, what is refused, and what follows from what."""

import numpy as np
import pytest

from tvm_droplet_ms.session.errors import ModelError
from tvm_droplet_ms.tuning.frontends.extents import DeclaredInput, resolve_shapes

IMAGE = DeclaredInput("image", ("batch", 3, "height", "width"))
MASK = DeclaredInput("mask", ("batch", "width"))
SOUND = DeclaredInput("sound", (2, None))
FREE = DeclaredInput("free", None)


def test_names_hold_for_all_inputs():
    dims = {"batch": 2, "height": np.int64(5), "width": 7}
    assert resolve_shapes([IMAGE, MASK], {}, dims) == {"image": [2, 3, 5, 7], "mask": [2, 7]}


def test_a_shape_gives_its_names_to_the_other_inputs():
    found = resolve_shapes([IMAGE, MASK], {"image": (2, 3, 5, 7)}, {})
    assert found == {"image": [2, 3, 5, 7], "mask": [2, 7]}


def test_shapes_may_break_with_a_name_that_the_model_uses_twice():
    found = resolve_shapes([IMAGE, MASK], {"image": (2, 3, 5, 7), "mask": (2, 9)}, {})
    assert found["mask"] == [2, 9]


def test_shapes_fill_what_has_no_name_or_no_rank():
    found = resolve_shapes([SOUND, FREE], {"sound": (2, 8), "free": (4,)}, {})
    assert found == {"sound": [2, 8], "free": [4]}


def test_all_that_is_missing_is_asked_for_at_once():
    with pytest.raises(ModelError) as raised:
        resolve_shapes([IMAGE, MASK, SOUND, FREE], {}, {"height": 5})
    text = str(raised.value)
    assert "input 'image' has the open shape (batch, 3, height, width)" in text
    assert "input 'sound' has the open shape (2, ?), input 'free' has no shape" in text
    assert "dims={'batch': 1, 'width': 224}, shapes={'sound': (2, 1), 'free': (" in text
    assert "--dim batch=1 --dim width=224 --shape sound=2,1 --shape free=" in text
    assert "\n" not in text and text.count("--dim") == 2


@pytest.mark.parametrize(
    ("shapes", "dims", "message"),
    [
        ({"imag": (1,)}, {}, "shapes names the input 'imag': the model has image, mask"),
        ({}, {"widht": 3}, "dims names the extent 'widht'.*leaves open batch, height, width"),
        ({"mask": (2, 7)}, {"batch": 3}, r"'mask' the shape \(2, 7\): the model has \(batch, w"),
        ({"mask": (2,)}, {}, r"'mask' the shape \(2,\): the model has \(batch, width\)"),
        ({"image": (2, 4, 5, 7)}, {}, "'image' the shape .*: the model has"),
        ({"mask": "2,7"}, {}, "'mask' the shape '2,7': expected a sequence"),
        ({"mask": 2}, {}, "'mask' the shape 2: expected a sequence"),
    ],
)
def test_what_does_not_fit_is_named(shapes, dims, message):
    with pytest.raises(ModelError, match=message):
        resolve_shapes([IMAGE, MASK], shapes, dims)


def test_dims_of_a_model_without_names_are_refused():
    with pytest.raises(ModelError, match="'batch' of the model's inputs: none is open by name"):
        resolve_shapes([SOUND], {"sound": (2, 3)}, {"batch": 1})
