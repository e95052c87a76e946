# SPDX-License-Identifier: Apache-2.0
"""The elements and weights of a Resize beside ONNX Runtime, in NumPy alone."""

import itertools

import numpy as np
import pytest
from onnx import helper

from tvm_droplet_ms.frontends.onnx.operators.nodes.resize import (
    Axis,
    Method,
    coordinates,
    taps,
)

pytest.importorskip("onnxruntime")

from onnx_models import model, value
from operator_runs import assert_same, run_there

LINE = np.arange(7, dtype=np.float32) ** 2 + 3


def along(axis, method):
    found = taps(axis, method)
    return (LINE[found.indices] * found.weights).sum(axis=1)


def resized(method, *, sizes=None, scales=None):
    """The same by ONNX Runtime."""
    attributes = {
        "mode": method.mode,
        "coordinate_transformation_mode": method.coordinates,
        "nearest_mode": method.nearest,
        "cubic_coeff_a": method.cubic,
        "exclude_outside": int(method.exclude_outside),
        "antialias": int(method.antialias),
    }
    if method.mode == "cubic":
        # It interpolates cubically in two axes alone.
        data = np.broadcast_to(LINE, (1, 1, 7, 7)).copy()
    else:
        data = LINE.reshape(1, 1, 1, 7)
    last = {"scales": scales} if sizes is None else {"sizes": sizes}
    (name, wanted), rows = *last.items(), data.shape[2]
    full = [1, 1, 1 if name == "scales" else rows, wanted]
    inputs = ["x", "", name] if name == "scales" else ["x", "", "", name]
    constant = np.array(full, np.float32 if name == "scales" else np.int64)
    made = model(
        [helper.make_node("Resize", inputs, ["y"], **attributes)],
        [value("x", data.shape)],
        ["y"],
        opset=19,
        **{name: constant},
    )
    return run_there(made, {"x": data})[0].reshape(-1, run_there(made, {"x": data})[0].shape[3])[0]


@pytest.mark.parametrize("size", [3, 4, 7, 10, 14])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_sizes_give_what_onnx_runtime_gives(mode, size):
    ways = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
    roundings = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    for way, rounding in itertools.product(ways, roundings if mode == "nearest" else roundings[:1]):
        method = Method(mode, way, rounding)
        found = along(Axis(7, size, size / 7), method)
        expected = resized(method, sizes=size)
        np.testing.assert_allclose(
            found, expected, rtol=1e-5, atol=1e-4, err_msg=f"{way} {rounding}"
        )


@pytest.mark.parametrize("scale", [0.6, 1.5, 1.7, 2.0])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_scales_that_are_no_quotient_of_extents_give_what_onnx_runtime_gives(mode, scale):
    for way in ("half_pixel", "asymmetric"):
        method = Method(mode, way)
        axis = Axis(7, int(np.floor(np.float32(7) * np.float32(scale))), scale)
        np.testing.assert_allclose(
            along(axis, method), resized(method, scales=scale), rtol=1e-5, atol=1e-4
        )


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialiasing_gives_what_onnx_runtime_gives(mode):
    for size in (2, 3, 5):
        method = Method(mode, antialias=True, exclude_outside=True)
        found = along(Axis(7, size, size / 7), method)
        np.testing.assert_allclose(found, resized(method, sizes=size), rtol=1e-4, atol=1e-3)


def test_weights_sum_to_one_and_elements_are_on_the_axis():
    for mode, antialias, outside in itertools.product(
        ("linear", "cubic"), (False, True), (False, True)
    ):
        for size in (1, 2, 5, 13):
            method = Method(mode, antialias=antialias, exclude_outside=outside)
            found = taps(Axis(6, size, size / 6), method)
            np.testing.assert_allclose(found.weights.sum(axis=1), 1, atol=1e-6)
            assert found.indices.min() >= 0 and found.indices.max() <= 5


def test_an_unknown_mode_is_named():
    with pytest.raises(ValueError, match="'sideways'"):
        coordinates(Axis(4, 8, 2.0), "sideways")
    with pytest.raises(ValueError, match="'area'"):
        taps(Axis(4, 8, 2.0), Method("area"))


@pytest.mark.parametrize(
    "attributes, scales",
    [
        ({"mode": "nearest"}, [1, 1, 1.5, 1.5]),
        ({"mode": "linear"}, [1, 1, 1.7, 0.6]),
        ({"mode": "linear", "coordinate_transformation_mode": "align_corners"}, [1, 1, 2, 2]),
        ({"mode": "nearest", "nearest_mode": "floor"}, [1, 1, 2, 2]),
        ({"mode": "cubic", "coordinate_transformation_mode": "asymmetric"}, [1, 1, 2.5, 1.5]),
    ],
)
def test_a_compiled_resize_gives_what_onnx_runtime_gives(attributes, scales):
    x = np.random.default_rng(1).standard_normal((1, 3, 5, 7)).astype(np.float32)
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], **attributes)
    made = model(
        [node], [value("x", x.shape)], ["y"], opset=13, scales=np.array(scales, np.float32)
    )
    assert_same(made, {"x": x})


@pytest.mark.parametrize("attributes", [{"mode": "linear"}, {"mode": "cubic", "antialias": 1}])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32"])
def test_integers_are_interpolated_as_numbers(dtype, attributes):
    if dtype == "int8" and "antialias" in attributes:
        pytest.skip("ONNX Runtime takes its bytes for unsigned ones")
    limits = np.iinfo(np.dtype(dtype) if dtype != "int32" else np.int8)
    x = np.random.default_rng(1).integers(limits.min, limits.max + 1, (1, 2, 9, 12)).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    made = model(
        [helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], **attributes)],
        [value("x", x.shape, kind)],
        [value("y", None, kind)],
        opset=18,
        sizes=np.array([1, 2, 18, 6]),
    )
    # ONNX Runtime has weights of 22 bits with antialias.
    assert_same(made, {"x": x}, atol=1 if "antialias" in attributes else 0)
