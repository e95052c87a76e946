# SPDX-License-Identifier: Apache-2.0
"""A Relax pass that computes chosen 3x3 convolutions with Winograd's algorithm."""

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax
from tvm.ir import GenericConst, IRModule

from ...bindings import is_float32, operator_name, static_shape
from ...layers import layouts_of
from .strips import register_winograd_rules
from .winograd_choice import Layer
from .winograd_compute import winograd_convolution
from .winograd_matrices import KERNEL_SIZE, POINTS, transform_weights


def WinogradConvolutions(choose: Callable[[Layer], int | None]) -> tvm.transform.Pass:
    """Make a pass that computes chosen convolutions with Winograd's algorithm.

    Candidates are calls of ``relax.nn.conv2d`` in float32 with 3x3 kernels, stride 1, dilation 1,
    one group, layouts NHWC and HWIO, constant extents and constant weights. The pass transforms
    their weights with NumPy, and replaces each call by a ``call_tir``. So it belongs after the
    layout pass and before ``LegalizeOps``. Everything else stays unchanged.

    ``FuseOps`` fuses the consumers, such as a bias and a ReLU, as with a direct convolution. Making
    the pass registers the schedule rules of the transforms, which MetaSchedule needs to tune the
    kernels. ``choose``: called for each candidate, in order. It returns the tile size, 2 or 4, or
    None to keep the direct convolution. A tile of 4 needs 4 times fewer products than a direct
    convolution, and a tile of 2 needs 2.25 times fewer. With 512 input channels, the largest error
    of a layer is about 5e-6 (tile 4) and 8e-7 (tile 2) of its largest output, and 6e-7 with the
    direct float32 convolution. The pass raises ValueError if `choose` returns any other tile.
    """
    register_winograd_rules()

    def replace(mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        mutator = _Replacer(mod, choose)
        for var, function in mod.functions_items():
            if isinstance(function, relax.Function):
                mutator.builder_.update_func(var, mutator.visit_expr(function))
        return mutator.builder_.get()

    return tvm.transform.module_pass(replace, opt_level=0, name="WinogradConvolutions")


@relax.expr_functor.mutator
class _Replacer(relax.PyExprMutator):
    """Replaces the chosen convolutions of a module."""

    def __init__(self, mod: IRModule, choose: Callable[[Layer], int | None]) -> None:
        super().__init__(mod)
        self._choose = choose

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        layer = convolution_layer(call)
        tile = None if layer is None else self._choose(layer)
        if tile is None:
            return call
        if tile not in POINTS:
            raise ValueError(
                f"choose returned the tile {tile!r} for {layer}: expected 2, 4, or None to keep "
                "the direct convolution"
            )
        data, weights = call.args
        transformed = transform_weights(weights.value.numpy(), tile)
        return self.builder_.call_te(
            winograd_convolution,
            data,
            relax.const(transformed),
            tile,
            [int(pad) for pad in call.attrs.padding],
            primfunc_name_hint=f"conv2d_winograd_{tile}",
        )


def convolution_layer(call: Any) -> Layer | None:
    """Return the extents of a convolution that the pass can replace; None for other calls.

    ``call``: any call.
    """
    if operator_name(call) != "relax.nn.conv2d":
        return None
    data, weights = call.args
    attributes = call.attrs
    images, kernel, result = (
        static_shape(each) if is_float32(each) else None for each in (data, weights, call)
    )
    if (
        layouts_of(attributes) != ("NHWC", "HWIO", "NHWC")
        or not isinstance(weights, GenericConst)
        or str(attributes.out_dtype or "float32") != "float32"
        or images is None
        or kernel is None
        or result is None
        or [int(stride) for stride in attributes.strides] != [1, 1]
        or [int(step) for step in attributes.dilation] != [1, 1]
        or int(attributes.groups) != 1
    ):
        return None
    return Layer(*images, *result[1:]) if kernel[:2] == (KERNEL_SIZE, KERNEL_SIZE) else None
