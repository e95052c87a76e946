# SPDX-License-Identifier: Apache-2.0
"""3D convolutions that can be computed as 2D convolutions.

A kernel with one plane convolves each plane separately. A kernel with one pixel per plane convolves
each pixel separately. Video networks split their kernels this way (Tran et al., "A Closer Look at
Spatiotemporal Convolutions for Action Recognition", 2018, section 3.5).
"""

import tvm
from tvm import relax

from ..bindings import Bindings, Expr, Var, array_of, constant, operator_name, static_shape
from ..layers import layouts_of
from ..rewriting import Emit, binding_pass, stateless

_VOLUMES = "relax.nn.conv3d"


def flatten_volumes() -> tvm.transform.Pass:
    """Make a pass that computes 3D convolutions as 2D convolutions where possible.

    2D kernels have known schedules, and design spaces with fewer loops. Returns the pass. It
    rewrites convolutions in NDHWC with constant weights whose kernel has an extent of 1 along the
    depth, without padding there. It also rewrites them if the kernel has an extent of 1 along both
    other axes, without padding and with strides of 1 there. Convolutions with an extent of 0 stay.
    """
    return binding_pass("FlattenVolumes", stateless(_flatten), [_VOLUMES])


def _flatten(bindings: Bindings, _var: Var, value: Expr, emit: Emit) -> Expr | None:
    if operator_name(value) != _VOLUMES:
        return None
    attrs, data = value.attrs, value.args[0]
    weights = array_of(bindings.value_of(value.args[1]))
    shape, result = static_shape(data), static_shape(value)
    is_known = layouts_of(attrs) == ("NDHWC", "DHWIO", "NDHWC")
    if not is_known or weights is None or shape is None or result is None:
        return None
    if min(*shape, *result) < 1:  # In Relax's reshape, 0 keeps the extent of the input.
        return None
    strides, dilation = [int(n) for n in attrs.strides], [int(n) for n in attrs.dilation]
    padding = [(int(attrs.padding[n]), int(attrs.padding[n + 3])) for n in range(3)]
    count, depth, height, width, channels = shape
    depth_taps, *image_taps = weights.shape[:3]
    if depth_taps == 1 and padding[0] == (0, 0):
        if strides[0] > 1:
            data = emit(
                relax.op.strided_slice(data, [1], begin=[0], end=[depth], strides=strides[:1])
            )
        images, axes = (count * result[1], height, width, channels), (1, 2)
    elif image_taps == [1, 1] and strides[1:] == [1, 1] and padding[1:] == [(0, 0)] * 2:
        images, axes = (count, depth, height * width, channels), (0, 2)
    else:
        return None
    filters = weights.reshape(*(weights.shape[axis] for axis in axes), *weights.shape[3:])
    found = relax.op.nn.conv2d(
        emit(relax.op.reshape(data, images)),
        constant(filters),
        strides=[strides[axis] for axis in axes],
        padding=[padding[axis][end] for end in (0, 1) for axis in axes],
        dilation=[dilation[axis] for axis in axes],
        groups=int(attrs.groups),
        data_layout="NHWC",
        kernel_layout="HWIO",
        out_dtype=attrs.out_dtype,
    )
    return relax.op.reshape(emit(found), result)
