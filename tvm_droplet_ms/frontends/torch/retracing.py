# SPDX-License-Identifier: Apache-2.0
"""Retrace an exported program with other types: float32 for half, pairs for complex.

PyTorch's own export does the work: a module interprets the program, and this module is exported.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...session.errors import ModelError
from .loading import unlifted
from .open_extents import user_inputs, user_specs

Shapes = Mapping[str, Sequence[int]]


def leaves_open(torch: Any, program: Any, shapes: Shapes) -> bool:
    """Return whether a program has dynamic extents and ``shapes`` fits and has all of them."""
    is_open = False
    for name, noted in user_inputs(torch, program).items():
        for number, extent in enumerate(noted.shape):
            if isinstance(extent, int):
                continue
            is_open, given = True, shapes.get(name, ())
            if len(given) != len(noted.shape) or int(given[number]) < 1:
                return False
    return is_open


def retrace(torch: Any, program: Any, shapes: Shapes) -> Any:
    """Export a decomposed program again, with real float32 numbers and static shapes.

    The new program takes the tensor inputs by keyword and returns a flat tuple of the outputs, with
    the types of the old program. Internally, it computes in float32 instead of float16 or bfloat16,
    and with real and imaginary parts instead of complex numbers.
    """
    inner = unlifted(program)
    # Inputs are passed by keyword to keep their names.
    examples = {
        name: torch.zeros(tuple(_extents(noted, shapes.get(name))), dtype=noted.dtype)
        for name, noted in user_inputs(torch, program).items()
    }
    specs = [spec.arg for spec in user_specs(torch, program)]
    fixed = {spec.name: getattr(spec, "value", None) for spec in specs if spec.name not in examples}
    module = _interpreting(torch, inner, [spec.name for spec in specs], fixed)
    with torch.no_grad():
        return torch.export.export(module, (), examples, strict=False)


def _extents(noted: Any, given: Sequence[int] | None) -> list[int]:
    """Return an input's shape: static extents, then given ones, then those of the example."""
    given = given if given is not None and len(given) == len(noted.shape) else noted.shape
    pairs = zip(noted.shape, given, strict=True)
    return [int(extent if isinstance(extent, int) else other) for extent, other in pairs]


def _interpreting(torch: Any, inner: Any, names: Sequence[str], fixed: Mapping[str, Any]) -> Any:
    """Return a module that runs a program. ``fixed``: the values of non-tensor inputs."""
    half = (torch.float16, torch.bfloat16)

    def widened(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dtype in half:
            return value.float()
        return value

    def narrowed(value: Any, declared: Any) -> Any:
        if isinstance(value, Pair):
            return value.parts
        if isinstance(declared, torch.Tensor) and declared.dtype in half:
            return value.to(declared.dtype)
        return value

    class Interpreter(torch.fx.Interpreter):  # type: ignore[misc]
        def get_attr(self, target: str, args: Any, kwargs: Any) -> Any:
            return widened(super().get_attr(target, args, kwargs))

        def placeholder(self, target: str, args: Any, kwargs: Any) -> Any:
            return widened(super().placeholder(target, args, kwargs))

        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            if getattr(target, "__name__", "").startswith("_assert"):
                # These assert types, which differ here, or extents.
                return None
            if any(kwargs.get("dtype") is each for each in half):
                kwargs = {**kwargs, "dtype": torch.float32}
            return call(torch, target, args, kwargs)

    class Interpreting(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, **inputs: Any) -> Any:
            values = [fixed[name] if name in fixed else inputs[name] for name in names]
            outputs = Interpreter(self.inner).run(*values, enable_io_processing=False)
            flat: Sequence[Any] = torch.utils._pytree.tree_leaves(
                outputs, is_leaf=lambda each: isinstance(each, Pair)
            )
            return tuple(map(narrowed, flat, declared))

    output = next(node for node in inner.graph.nodes if node.op == "output")
    declared = [
        node.meta.get("val") if isinstance(node, torch.fx.Node) else node
        for node in torch.utils._pytree.tree_leaves(output.args[0])
    ]
    module = Interpreting()
    # ``eval()`` would also call the program's ``eval()``, which raises.
    module.training = False
    return module


_EXPECTED = (
    "expected transforms, products, absolute values, and real and imaginary parts; export the "
    "model up to its spectrum"
)


@dataclass(frozen=True)
class Pair:
    """A complex tensor. ``parts``: its real and imaginary parts, along a last axis of extent 2."""

    parts: Any


def call(torch: Any, target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call a PyTorch operator on tensors and pairs; a complex result is a ``Pair``.

    Raises ``ModelError``, which names the operator, if it is not supported for complex numbers.
    """
    name = getattr(target, "__name__", str(target))
    args = [_paired(torch, arg) for arg in args]
    if name in _TRANSFORMS:
        return _TRANSFORMS[name](torch, *args, **kwargs)
    dtype = kwargs.get("dtype")
    if dtype is not None and dtype.is_complex:
        if name != "_to_copy.default":
            raise ModelError(f"the model makes complex numbers by {name}: {_EXPECTED}")
        return Pair(_parts(torch, args[0]))
    leaves = torch.utils._pytree.tree_leaves(args, is_leaf=lambda each: isinstance(each, Pair))
    if not any(isinstance(leaf, Pair) for leaf in leaves):
        return target(*args, **kwargs)
    if name in _OF_PAIRS:
        return _OF_PAIRS[name](torch, *args, **kwargs)
    if name in _SHAPING:
        return _SHAPING[name](target, *args, **kwargs)
    raise ModelError(f"the model computes {name} of complex numbers: {_EXPECTED}")


def _paired(torch: Any, value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_complex():
        return Pair(torch.view_as_real(value))
    return value


def _matrices(torch: Any, length: int, sign: int, dtype: Any) -> tuple[Any, Any]:
    """Return the cosine and sine matrices of a discrete Fourier transform."""
    turns = torch.arange(length)[:, None] * torch.arange(length) % length
    angle = (2 * math.pi / length) * turns.double()
    return angle.cos().to(dtype), (sign * angle.sin()).to(dtype)


def _transformed(torch: Any, parts: Any, axes: Sequence[int], sign: int) -> Any:
    """Transform pairs along axes, by one product with a constant matrix for each."""
    for axis in axes:
        length = parts.shape[axis]
        cosines, sines = _matrices(torch, length, sign, parts.dtype)
        real = torch.stack([cosines, sines], -1)
        imaginary = torch.stack([-sines, cosines], -1)
        matrix = torch.stack([real, imaginary], 1).reshape(2 * length, 2 * length)
        moved = parts.movedim(axis, -2)
        product = moved.reshape(*moved.shape[:-2], 2 * length) @ matrix
        parts = product.reshape(*moved.shape[:-2], length, 2).movedim(-2, axis)
    return parts


def _norm(mode: int, extents: Iterable[int]) -> float:
    """Return the factor of PyTorch's ``fft_norm_mode``: 1, 1 / sqrt(count), or 1 / count."""
    count = math.prod(extents)
    return (1.0, count**-0.5, 1.0 / count)[mode]


def _real_to_complex(torch: Any, x: Any, axes: Sequence[int], mode: int, one_sided: bool) -> Pair:
    *rest, last = (axis % x.dim() for axis in axes)
    length = x.shape[last]
    cosines, sines = _matrices(torch, length, -1, x.dtype)
    bins = length // 2 + 1 if one_sided else length
    matrix = torch.stack([cosines[:, :bins], sines[:, :bins]], -1).reshape(length, 2 * bins)
    product = x.movedim(last, -1) @ matrix
    parts = product.reshape(*product.shape[:-1], bins, 2).movedim(-2, last)
    parts = _transformed(torch, parts, rest, -1)
    return Pair(parts * _norm(mode, (x.shape[axis] for axis in axes)))


def _complex_to_complex(torch: Any, x: Any, axes: Sequence[int], mode: int, forward: bool) -> Pair:
    parts = _parts(torch, x)
    axes = [axis % (parts.dim() - 1) for axis in axes]
    parts = _transformed(torch, parts, axes, -1 if forward else 1)
    return Pair(parts * _norm(mode, (parts.shape[axis] for axis in axes)))


def _complex_to_real(torch: Any, x: Pair, axes: Sequence[int], mode: int, length: int) -> Any:
    *rest, last = (axis % (x.parts.dim() - 1) for axis in axes)
    parts = _transformed(torch, x.parts, rest, 1)
    bins = length // 2 + 1
    cosines, sines = _matrices(torch, length, 1, parts.dtype)
    # Bins between the first and the one at half the length also stand for their conjugates.
    weights = torch.full((bins, 1), 2.0, dtype=parts.dtype)
    weights[0] = 1.0
    if length % 2 == 0:
        weights[-1] = 1.0
    matrix = torch.stack([weights * cosines[:bins], -weights * sines[:bins]], 1)
    moved = parts.movedim(last, -2)
    product = moved.reshape(*moved.shape[:-2], 2 * bins) @ matrix.reshape(2 * bins, length)
    return product.movedim(-1, last) * _norm(mode, (*(parts.shape[axis] for axis in rest), length))


_TRANSFORMS: dict[str, Callable[..., Any]] = {
    "_fft_r2c.default": _real_to_complex,
    "_fft_c2c.default": _complex_to_complex,
    "_fft_c2r.default": _complex_to_real,
    "view_as_complex.default": lambda torch, x: Pair(x),
    "complex.default": lambda torch, real, imaginary: Pair(torch.stack([real, imaginary], -1)),
    "polar.default": lambda torch, size, angle: Pair(
        torch.stack([size * angle.cos(), size * angle.sin()], -1)
    ),
}


def _product(torch: Any, one: Any, other: Any) -> Pair:
    if not isinstance(one, Pair):
        one, other = other, one
    if not isinstance(other, Pair):
        factor = other[..., None] if isinstance(other, torch.Tensor) else other
        return Pair(one.parts * factor)
    (a, b), (c, d) = one.parts.unbind(-1), other.parts.unbind(-1)
    return Pair(torch.stack([a * c - b * d, a * d + b * c], -1))


def _sum(sign: int) -> Callable[..., Pair]:
    def add(torch: Any, one: Any, other: Any) -> Pair:
        return Pair(_parts(torch, one) + sign * _parts(torch, other))

    return add


def _parts(torch: Any, value: Any) -> Any:
    if isinstance(value, Pair):
        return value.parts
    return torch.stack([value, torch.zeros_like(value)], -1)


_OF_PAIRS: dict[str, Callable[..., Any]] = {
    "view_as_real.default": lambda torch, x: x.parts,
    "real.default": lambda torch, x: x.parts[..., 0],
    "imag.default": lambda torch, x: x.parts[..., 1],
    "abs.default": lambda torch, x: x.parts.square().sum(-1).sqrt(),
    "angle.default": lambda torch, x: torch.atan2(x.parts[..., 1], x.parts[..., 0]),
    "_conj.default": lambda torch, x: Pair(x.parts * torch.tensor([1.0, -1.0])),
    "mul.Tensor": _product,
    "mul.Scalar": _product,
    "div.Tensor": lambda torch, x, by: _product(torch, x, 1 / by),
    "add.Tensor": _sum(1),
    "sub.Tensor": _sum(-1),
    "neg.default": lambda torch, x: Pair(-x.parts),
    "sum.dim_IntList": lambda torch, x, axes, keep=False: Pair(
        x.parts.sum([axis % (x.parts.dim() - 1) for axis in axes], keepdim=keep)
    ),
}


def _along_axis(target: Any, x: Pair, axis: int = 0, *rest: Any, **kwargs: Any) -> Any:
    """Call an operator whose second operand is an axis or a list of axes."""
    rank = x.parts.dim() - 1
    axes = [each % rank for each in axis] if isinstance(axis, list | tuple) else axis % rank
    result = target(x.parts, axes, *rest, **kwargs)
    return [Pair(each) for each in result] if isinstance(result, list | tuple) else Pair(result)


def _split(target: Any, x: Pair, sizes: Any, axis: int = 0) -> list[Pair]:
    return [Pair(each) for each in target(x.parts, sizes, axis % (x.parts.dim() - 1))]


_SHAPING: dict[str, Callable[..., Any]] = {
    "view.default": lambda target, x, shape: Pair(target(x.parts, [*shape, 2])),
    "_unsafe_view.default": lambda target, x, shape: Pair(target(x.parts, [*shape, 2])),
    "expand.default": lambda target, x, shape, **_: Pair(target(x.parts, [*shape, 2])),
    "permute.default": lambda target, x, axes: Pair(
        target(x.parts, [axis % len(axes) for axis in axes] + [len(axes)])
    ),
    "unsqueeze.default": lambda target, x, axis: Pair(target(x.parts, axis % x.parts.dim())),
    "squeeze.dims": _along_axis,
    "select.int": _along_axis,
    "slice.Tensor": _along_axis,
    "split_with_sizes.default": _split,
    "getitem": lambda target, x, index: x[index],
    "cat.default": lambda target, x, axis=0: Pair(
        target([each.parts for each in x], axis % (x[0].parts.dim() - 1))
    ),
    "clone.default": lambda target, x, **_: x,
    "alias.default": lambda target, x: x,
}
