# SPDX-License-Identifier: Apache-2.0
"""Decompose an exported program into fewer, simpler operators."""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...session.errors import ModelError
from .loading import line_of
from .recurrent import KEPT, has_projections


def _unfold(torch: Any, x: Any, axis: int, size: int, step: int) -> Any:
    """Return the windows along an axis. PyTorch's own rule uses a strided view, which TVM lacks."""
    axis = axis % x.dim()
    count = (x.shape[axis] - size) // step + 1
    if size == step:
        whole = x.narrow(axis, 0, count * size).unflatten(axis, (count, size))
    else:
        places = torch.arange(count)[:, None] * step + torch.arange(size)
        whole = x.index_select(axis, places.flatten()).unflatten(axis, (count, size))
    return whole.movedim(axis + 1, -1)


def _adaptive_max_pool(torch: Any, x: Any, sizes: Sequence[int]) -> Any:
    """Return the maxima of windows of varying sizes, and their indices in the flat image."""
    spatial = x.shape[-len(sizes) :]
    flat = torch.arange(spatial.numel()).reshape(spatial)
    values, places = x, flat.expand(x.shape)
    for offset, count in enumerate(sizes):
        axis = x.dim() - len(sizes) + offset
        parts, extent = [], x.shape[axis]
        for n in range(count):  # As in ``AdaptiveMaxPooling2d.cpp``.
            low, high = n * extent // count, -(-(n + 1) * extent // count)
            window = values.narrow(axis, low, high - low)
            best, where = window.max(axis, keepdim=True)
            parts.append((best, places.narrow(axis, low, high - low).gather(axis, where)))
        values = torch.cat([best for best, _ in parts], axis)
        places = torch.cat([place for _, place in parts], axis)
    return values, places


def _fold(
    torch: Any,
    x: Any,
    size: Sequence[int],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Any:
    """Sum overlapping windows (``col2im``). PyTorch's own rule adds elements one by one."""
    windows = kernel[0] * kernel[1]
    counts = [
        (size[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
        for i in range(2)
    ]
    channels = x.shape[-2] // windows
    batch = x.shape[:-2]
    if list(stride) == list(kernel) and not any(padding) and set(dilation) == {1}:
        if all(counts[i] * kernel[i] == size[i] for i in range(2)):
            places = x.reshape(*batch, channels, *kernel, *counts)
            rank = len(batch)
            order = [rank, rank + 3, rank + 1, rank + 4, rank + 2]
            return places.permute(*range(rank), *order).reshape(*batch, channels, *size)
    # A transposed convolution puts each element of a window in its place.
    weight = torch.eye(windows, dtype=x.dtype).reshape(windows, 1, *kernel)
    spread = [(counts[i] - 1) * stride[i] + dilation[i] * (kernel[i] - 1) + 1 for i in range(2)]
    whole = torch.nn.functional.conv_transpose2d(
        x.reshape(-1, windows, *counts), weight, stride=list(stride), dilation=list(dilation)
    )
    more = [size[i] + 2 * padding[i] - spread[i] for i in range(2)]
    whole = torch.nn.functional.pad(whole, (0, more[1], 0, more[0]))
    inner = whole.narrow(-2, padding[0], size[0]).narrow(-1, padding[1], size[1])
    return inner.reshape(*batch, channels, *size)


def _attention(
    torch: Any,
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    **options: Any,
) -> Any:
    """Compute attention; rows where everything is masked give zero.

    ``options``: PyTorch's ``scale`` and ``enable_gqa``.

    PyTorch's own rule finds such rows in the scores. This rule finds them in the mask, which is
    smaller and often constant. The strides of PyTorch's rule also fit only batches of one.
    """
    if dropout > 0.0:
        return NotImplemented
    if options.get("enable_gqa", False):
        repeats = query.shape[-3] // key.shape[-3]
        key, value = (each.repeat_interleave(repeats, -3) for each in (key, value))
    scale = options.get("scale")
    scores = (query * (query.shape[-1] ** -0.5 if scale is None else scale)) @ key.mT
    if is_causal:
        mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
    if mask is None:
        return scores.softmax(-1) @ value
    if mask.dtype is torch.bool:
        scores = scores.masked_fill(~mask, -math.inf)
        is_seen = mask.any(-1, keepdim=True)
    else:
        scores = scores + mask
        is_seen = (mask != -math.inf).any(-1, keepdim=True)
    product = scores.softmax(-1) @ value
    return product if is_causal else torch.where(is_seen, product, 0.0)


def _index_put(
    torch: Any, x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False
) -> Any:
    """Compute ``x[:, i, j] = values``: merge the indexed axes into one, and also the indices.

    TVM's importer does not add axes after the last index. A single row, such as that of a decoder's
    cache, is written by ``where`` instead of a scatter: a loop without branches over all of ``x``.
    """
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    given = [indices[axis] for axis in axes]
    if any(index.dtype is torch.bool for index in given):
        return _masked(torch, x, axes, given, values, accumulate)
    given = torch.broadcast_tensors(*given)
    if not given[0].numel():
        return x.clone()
    places = torch.zeros((), dtype=torch.int64)
    for axis, index in zip(axes, given, strict=True):
        extent = x.shape[axis]
        places = places * extent + torch.where(index < 0, index + extent, index)
    others = [axis for axis in range(x.dim()) if axis not in axes]
    rest = [x.shape[axis] for axis in others]
    is_adjacent = axes == list(range(axes[0], axes[-1] + 1))
    first = axes[0] if is_adjacent else 0
    taken = values.expand([*rest[:first], *places.shape, *rest[first:]])
    taken = (
        taken.flatten(first, first + places.dim() - 1)
        if places.dim()
        else taken[(slice(None),) * first + (None,)]
    )
    if is_adjacent:
        whole = x.flatten(axes[0], axes[-1])
        return _put(torch, whole, first, places, taken, accumulate).reshape(x.shape)
    order = [*axes, *others]
    whole = x.permute(*order).flatten(0, len(axes) - 1)
    put = _put(torch, whole, 0, places, taken, accumulate)
    apart = put.reshape(*(x.shape[axis] for axis in order))
    return apart.permute(*(order.index(axis) for axis in range(x.dim())))


def _masked(
    torch: Any, x: Any, axes: Sequence[int], given: Sequence[Any], values: Any, adds: bool
) -> Any:
    """Compute ``x[mask] = values``, with one value or one for each true element in order."""
    mask = given[0]
    if len(given) > 1 or axes[0]:
        raise ModelError(
            "the model writes at a boolean mask and other indices, or at one behind the first "
            "axes: write torch.where(mask, values, x)"
        )
    rest = x.dim() - mask.dim()
    if values.dim() > rest and values.shape[0] != 1:
        # There are as many values as true elements: PyTorch raises an error otherwise.
        numbers = mask.flatten().to(torch.int64).cumsum(0) - 1
        of_place = values.index_select(0, numbers.clamp(0, values.shape[0] - 1))
        values = of_place.reshape(*mask.shape, *values.shape[1:])
    mask = mask.reshape(*mask.shape, *(1 for _ in range(rest)))
    return torch.where(mask, x + values if adds else values, x)


def _put(torch: Any, x: Any, axis: int, places: Any, values: Any, adds: bool) -> Any:
    """Return ``x`` with values at some places of an axis."""
    if not values.numel():
        return x.clone()
    column = [-1 if n == axis else 1 for n in range(x.dim())]
    places = places.reshape(column)
    if places.numel() == 1:
        is_there = torch.arange(x.shape[axis]).reshape(column) == places
        if adds:
            values = torch.logical_or(x, values) if x.dtype is torch.bool else x + values
        return torch.where(is_there, values, x)
    put = torch.scatter_add if adds else torch.scatter
    return put(x, axis, places.expand(values.shape), values)


RULES: dict[str, Callable[..., Any]] = {
    "adaptive_max_pool2d.default": _adaptive_max_pool,
    "adaptive_max_pool3d.default": _adaptive_max_pool,
    "col2im.default": _fold,
    "index_put.default": _index_put,
    "scaled_dot_product_attention.default": _attention,
    "unfold.default": _unfold,
}
"""Decomposition rules by overload name; each takes ``torch`` before the operands."""


def decompose(torch: Any, program: Any) -> Any:
    """Decompose a program by PyTorch's rules and ``RULES`` into operators that TVM supports."""
    table = torch.export.default_decompositions()
    for name, rule in RULES.items():
        packet, overload = name.split(".")
        table[getattr(getattr(torch.ops.aten, packet), overload)] = functools.partial(rule, torch)
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    recurrent = [node for node in nodes if node.target.__name__ in KEPT]
    if not any(map(has_projections, recurrent)):
        for node in recurrent:
            table.pop(node.target, None)
    with torch.no_grad(), _views_as_reshapes(torch, program):
        return program.run_decompositions(table)


@contextlib.contextmanager
def _views_as_reshapes(torch: Any, program: Any) -> Iterator[None]:
    """Make the views of a program reshapes: rules return other strides than PyTorch's operators.

    A program that changes tensors in place is left as it is: it may need the memory of a view.
    """
    graphs = [each.graph for each in program.graph_module.modules() if hasattr(each, "graph")]
    nodes = [node for graph in graphs for node in graph.nodes]
    schemas = [getattr(node.target, "_schema", None) for node in nodes]
    view, reshape = torch.ops.aten.view.default, torch.ops.aten.reshape.default
    is_changing = any(schema is not None and schema.is_mutable for schema in schemas)
    views = [node for node in nodes if node.target is view and not is_changing]
    for node in views:
        node.target = reshape
    try:
        yield
    finally:
        for node in views:
            node.target = view


def drop_what_computes_nothing(torch: Any, program: Any) -> None:
    """Remove assertions and non-tensor inputs (None, numbers, flags) from a program."""
    graph = program.graph_module.graph
    for node in reversed(list(graph.nodes)):
        name = getattr(node.target, "__name__", "")
        if name.startswith(("_assert", "sym_constrain_range")) and not node.users:
            graph.erase_node(node)
    signature = program.graph_signature
    constant = torch.export.graph_signature.ConstantArgument
    fixed = {
        spec.arg.name: spec.arg.value
        for spec in signature.input_specs
        if isinstance(spec.arg, constant)
    }
    for node in list(graph.nodes):
        if node.op == "placeholder" and node.name in fixed:
            node.users and node.replace_all_uses_with(fixed[node.name])
            graph.erase_node(node)
    signature.input_specs[:] = [s for s in signature.input_specs if s.arg.name not in fixed]


def refuse_random_numbers(torch: Any, program: Any) -> None:
    """Raise ``ModelError`` if a program draws random numbers, which would become constants."""
    for node in program.graph_module.graph.nodes:
        tags = getattr(node.target, "tags", ())
        if node.op == "call_function" and torch.Tag.nondeterministic_seeded in tags:
            if _is_idle_dropout(node):
                continue
            name = node.target.__name__
            raise ModelError(
                f"the model draws random numbers, {name}{line_of(node)}: a compiled model gives "
                "the same outputs for the same inputs; pass the numbers as an input"
            )


def _is_idle_dropout(node: Any) -> bool:
    name = node.target.__name__
    if name in KEPT:
        dropout, is_training = node.args[5:7]
        return dropout == 0.0 or not is_training
    return "dropout" in name and node.args[-1] is False
