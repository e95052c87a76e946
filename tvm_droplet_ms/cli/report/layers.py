# SPDX-License-Identifier: Apache-2.0
"""The layers that a kernel computes, as a person reads them: ``3x3 convolution 56x56x64 -> 64``.

The names of a model's nodes do not outlive the passes that rewrite and fuse them. What is left of
a layer is its operators, in the name of the function, and its extents, in the unscheduled kernel.
"""

import re
from functools import cache
from math import prod
from typing import Any

from tvm.ir import IRModule, Op
from tvm.s_tir import SBlock
from tvm.tirx import IterVar, Var

from ...design_space.trees import nodes_in
from ...model.kernels.winograd.winograd import implementation_of
from .shapes import extent_of, producer_of, spelled


def layer_of(name: str, mod: IRModule | None) -> str:
    """Describe the layers that a kernel computes; empty if its name has no operator of Relax.

    ``name``: the name of the function, such as ``fused_conv2d3_add1_relu``. ``mod``: its workload,
    whose convolution or pooling is told with its window, its input without the batch, its output
    channels, and whether it has groups. None if the run did not keep it.
    """
    operators = _operators(name)
    if not operators:
        return ""
    shown = [_english(each) for each in operators]
    for place, operator in enumerate(operators):
        if mod is not None and re.search(r"(conv|pool)\d?d?", operator):
            shown[place] = _with_window(shown[place], mod)
            break
    return " + ".join(shown)


def _operators(name: str) -> list[str]:
    """The operators in the name of a function, without the numbers that make names unique."""
    words = [re.sub(r"(?<=[a-z])\d+$", "", word) for word in name.split("_") if word]
    if words[:1] == ["fused"]:
        words = words[1:]
    found, is_known = [], False
    while words:
        lengths = range(len(words), 0, -1)
        length = next((n for n in lengths if "_".join(words[:n]) in _names()), 0)
        found.append("_".join(words[: length or 1]))
        is_known, words = is_known or length > 0, words[length or 1 :]
    return found if is_known else []


@cache
def _names() -> frozenset[str]:
    """The names of Relax's operators without their folders, and other names of kernels."""
    relax = (str(name) for name in Op.list_op_names())
    names = {name.rpartition(".")[2] for name in relax if name.startswith("relax.")}
    return frozenset(names | {"concatenate", "grouped_conv2d", "transpose"})


def _english(operator: str) -> str:
    operator = re.sub(r"conv\dd", "convolution", operator)
    return re.sub(r"pool\dd", "pool", operator).replace("_", " ")


def _with_window(operator: str, mod: IRModule) -> str:
    """The text of a convolution or a pooling with its window and its extents, where they show."""
    window, data, channels, groups = _window_of(mod)
    if not window:
        return operator
    to = f" -> {channels}" if channels > 1 else ""
    operator = operator.removeprefix("grouped ")
    return f"{spelled(window)} {groups}{operator} {spelled(data)}{to}"


def _window_of(mod: IRModule) -> tuple[list[int], list[Any], int, str]:
    """The window of a kernel, the extents of its input without the batch, its output channels.

    And "depthwise ", "grouped " or "". Pooling has no output channels of its own: 1. The window is
    empty if there is none.
    """
    what = implementation_of(mod) if "main" in mod else None
    if what is not None:
        layer = what.layer
        return [3, 3], [layer.in_height, layer.in_width, layer.in_channels], layer.channels, ""
    function = next(iter(mod.functions.values()))
    blocks = nodes_in(function.body, SBlock)
    reductions = [block for block in blocks if block.init is not None and block.reads]
    if not reductions:
        return [], [], 1, ""
    main = max(reductions, key=lambda block: prod(_extents(block).values()))
    extents, sums = (
        _extents(main),
        {axis.var for axis in main.iter_vars if axis.iter_type == IterVar.CommReduce},
    )
    data, *weights = main.reads
    indices = [set(nodes_in(each.min, Var)) & extents.keys() for each in data.region]
    of_data = set[Any]().union(*indices)
    of_weights = {axis for each in weights for axis in _axes(each) if axis in extents}
    # An element of the window is added to the position of an output: ``y + i``. A channel of a
    # group is added to that of an output, too, which has weights.
    places = of_data - sums - of_weights
    windows = [axes & sums for axes in indices if axes & sums and axes & places]
    window = [extents[axis] for axes in windows for axis in axes]
    source = producer_of(data.source, function, blocks)
    shape = list(source.shape[1:])
    # With groups, an output channel selects input channels.
    groups = ""
    if window and of_weights & of_data - sums:
        rest = prod(extents[axis] for axis in sums) // prod(window)
        groups = "depthwise " if rest == 1 else "grouped "
    return window, shape, prod(extents[axis] for axis in of_weights - sums), groups


def _axes(read: Any) -> set[Any]:
    return {axis for each in read.region for axis in nodes_in(each.min, Var)}


def _extents(block: Any) -> dict[Any, int]:
    return {axis.var: extent_of(axis) for axis in block.iter_vars}
