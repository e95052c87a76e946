# SPDX-License-Identifier: Apache-2.0
"""Computes chosen 3x3 convolutions with Winograd's algorithm, and recognizes their kernels.

Shapes alone are ambiguous: a product of 3 batches of 3 heads, a dilated convolution and a direct
convolution may have the same shapes. So the blocks of the unscheduled kernel are examined.
"""

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, NamedTuple

import tvm
from tvm import relax
from tvm.ir import GenericConst, IRModule
from tvm.s_tir.meta_schedule import ExtractedTask
from tvm.sym import Analyzer
from tvm.tirx import IterVar

from ...bindings import is_float32, operator_name, static_shape
from ...layers import layouts_of
from ...rewriting import call_pass
from ..kernel_pass import blocks_in
from .winograd_kernel import RULE, register_winograd_rules, winograd_convolution
from .winograd_matrices import KERNEL_SIZE, POINTS, transform_weights


class Layer(NamedTuple):
    """The extents of a convolution, in NHWC."""

    batch: int
    in_height: int
    in_width: int
    in_channels: int
    height: int
    width: int
    channels: int


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
    of a layer is about 5e-6 (tile 4), 8e-7 (tile 2) or 6e-7 (direct) of its largest output. The
    pass raises ValueError if `choose` returns any other tile.
    """
    register_winograd_rules()

    def replace(mutator: Any, call: Any) -> Any:
        layer = convolution_layer(call)
        tile = None if layer is None else choose(layer)
        if tile is None:
            return call
        if tile not in POINTS:
            raise ValueError(
                f"choose returned the tile {tile!r} for {layer}: expected 2, 4, or None to keep "
                "the direct convolution"
            )
        data, weights = call.args
        return mutator.builder_.call_te(
            winograd_convolution,
            data,
            relax.const(transform_weights(weights.value.numpy(), tile)),
            tile,
            [int(pad) for pad in call.attrs.padding],
            primfunc_name_hint=f"conv2d_winograd_{tile}",
        )

    return call_pass("WinogradConvolutions", replace)


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


TILES = (2, 4)
"""The candidate tiles of Winograd's algorithm: F(2, 3) and F(4, 3)."""

FLOPS_PER_BYTE = 8.0
"""Approximate operations of a core per byte read from memory, at 250 GFLOP/s and 30 GB/s. It is a
constant, so that a resumed run tries the same tile."""


class Implementation(NamedTuple):
    """A layer and the tile that computes it; None for the direct convolution."""

    layer: Layer
    tile: int | None

    @property
    def flops(self) -> int:
        """Floating-point operations, without those of Winograd's transforms."""
        layer, tile = self
        outputs = layer.batch * layer.height * layer.width
        if tile is not None:
            outputs = layer.batch * -(-layer.height // tile) * -(-layer.width // tile)
        return 2 * outputs * self.weights

    @property
    def weights(self) -> int:
        """The number of weights; with a tile, of transformed weights."""
        points = 3**2 if self.tile is None else (self.tile + 2) ** 2
        return points * self.layer.in_channels * self.layer.channels


def promising_tile(layer: Layer) -> int | None:
    """Return the tile that may be fastest for a layer; None for the direct convolution.

    The estimate is the longer of two times: computing the products, and reading the weights from
    memory. A tile of 4 has the fewest products, and four times the weights.
    """

    def time(tile: int | None) -> float:
        what = Implementation(layer, tile)
        return max(what.flops / FLOPS_PER_BYTE, 4.0 * what.weights)

    return min((None, *TILES), key=time)


def fastest_tiles(timed: Iterable[tuple[Implementation, float, float]]) -> dict[Layer, int]:
    """Return the tile of each layer for which a Winograd convolution is fastest.

    ``timed``: for each task that computes a layer: its implementation, how often the model runs it,
    and its best time in seconds. Several tasks may compute the same layer and differ in the fused
    operators. The direct convolution wins ties, and wins for layers that have a task without a
    time.
    """
    totals: dict[Implementation, float] = {}
    for what, weight, secs in timed:
        totals[what] = totals.get(what, 0.0) + weight * secs
    tiles: dict[Layer, int] = {}
    for (layer, tile), secs in totals.items():
        rivals = [totals.get(Implementation(layer, other), inf) for other in (None, *TILES)]
        if tile is not None and secs == min(rivals) < rivals[0] < inf:
            tiles.setdefault(layer, tile)
    return tiles


def implementation(task: ExtractedTask) -> Implementation | None:
    """Return the convolution of a task; see ``implementation_of``."""
    return implementation_of(task.dispatched[0])


def implementation_of(mod: IRModule) -> Implementation | None:
    """Return the convolution that a workload computes.

    ``mod``: the unscheduled workload: one function ``main`` of constant shapes. Returns None unless
    it has a 3x3 convolution in NHWC with stride 1, dilation 1 and one group.
    """
    blocks = blocks_in(mod["main"].body)
    found = _winograd(blocks)
    direct = next((block for block in blocks if _is_convolution(block)), None)
    if found is not None or direct is None:
        return found
    return _described(blocks, direct.reads[0].source, direct.writes[0].source, None)


def _is_convolution(block: Any) -> bool:
    """Return whether a block is a direct 3x3 convolution.

    It sums ``data[n, y + i, x + j, c] * weights[i, j, c, k]`` to ``[n, y, x, k]``, with 3 rows i
    and 3 columns j.
    """
    kinds = [int(axis.iter_type) for axis in block.iter_vars]
    if kinds != 4 * [IterVar.DataPar] + 3 * [IterVar.CommReduce]:
        return False
    if len(block.reads) != 2 or len(block.writes) != 1:
        return False
    n, y, x, k, i, j, c = (axis.var for axis in block.iter_vars)
    if [int(axis.dom.extent) for axis in block.iter_vars[4:6]] != [KERNEL_SIZE] * 2:
        return False
    analyzer = Analyzer()
    for axis in block.iter_vars:
        analyzer.bind(axis.var, axis.dom)
    expected = ((n, y + i, x + j, c), (i, j, c, k), (n, y, x, k))
    return all(
        _is_at(region, indices, analyzer)
        for region, indices in zip((*block.reads, *block.writes), expected, strict=True)
    )


def _is_at(region: Any, indices: Sequence[Any], analyzer: Analyzer) -> bool:
    """Return whether a region is the single element at the given indices."""
    return len(region.region) == len(indices) and all(
        analyzer.can_prove_equal(found.min, index) and analyzer.can_prove_equal(found.extent, 1)
        for found, index in zip(region.region, indices, strict=True)
    )


def _winograd(blocks: Sequence[Any]) -> Implementation | None:
    """Find a Winograd convolution by the schedule rule annotation of its output transform."""
    marked = {str(block.annotations.get("schedule_rule")): block for block in blocks}
    inverse = marked.get(RULE)
    if inverse is None:
        return None
    tile = int(inverse.iter_vars[0].dom.extent)
    outputs = [
        block.writes[0].source
        for block in blocks
        if any(read.source.same_as(inverse.writes[0].source) for read in block.reads)
    ]
    block = inverse
    # Go through the inverse columns, the products, the input transform and its columns.
    for _ in range(4):
        block = _writer(blocks, block.reads[0].source)
        if block is None:
            return None
    if tile not in TILES or len(outputs) != 1:
        return None
    return _described(blocks, block.reads[0].source, outputs[0], tile)


def _described(
    blocks: Sequence[Any], data: Any, output: Any, tile: int | None
) -> Implementation | None:
    """Return the layer from `data`, which may be padded, to `output`."""
    pad = _writer(blocks, data)
    if pad is not None:
        if len(pad.reads) != 1:
            return None
        data = pad.reads[0].source
    return Implementation(Layer(*_shape(data), *_shape(output)[1:]), tile)


def _writer(blocks: Sequence[Any], buffer: Any) -> Any:
    """Return the block that writes a buffer; None for an argument."""
    for block in blocks:
        if any(write.source.same_as(buffer) for write in block.writes):
            return block
    return None


def _shape(buffer: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in buffer.ty.shape)
