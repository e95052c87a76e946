# SPDX-License-Identifier: Apache-2.0
"""Random images and convolutions for the cases of rules. Imports no TVM."""

from ..cases import CaseMaker
from ..equality.language import Term
from .terms import Part, axes_of, call, sliced


def random_convolution(
    make: CaseMaker, data: Term, channels: int, layout: str, groups: int = 1, **changes: object
) -> Term:
    """A random convolution of some data."""
    outputs = groups * make.integer(1, 2)
    kernel = make.pick([(1, 1), (3, 3), (2, 3)])
    kernel_layout = make.pick(["OIHW", "HWIO"])
    extents = {"O": outputs, "I": channels // groups, "H": kernel[0], "W": kernel[1]}
    padding = make.pick([(0, 0, 0, 0), (1, 1, 1, 1), (1, 0, 0, 1)])
    attributes: dict[str, object] = {
        "strides": make.pick([(1, 1), (2, 2), (1, 2)]),
        "padding": padding,
        "dilation": make.pick([(1, 1), (1, 1), (2, 2)]),
        "groups": groups,
        "layout": layout,
        "kernel_layout": kernel_layout,
    }
    weight = make.weight(*[extents[letter] for letter in kernel_layout])
    return call("conv2d", data, weight, **(attributes | changes))


def image(make: CaseMaker, layout: str, channels: int, low: int = 5, high: int = 7) -> Term:
    """A random image."""
    extents = {"N": make.integer(1, 2), "C": channels}
    extents |= {"H": make.integer(low, high), "W": make.integer(low, high)}
    return make.input(*[extents[letter] for letter in layout])


def channel_shape(make: CaseMaker, layout: str, channels: int) -> tuple[int, ...]:
    """The shape of a value for each channel; sometimes of one for all, or of one for each row."""
    letter = make.pick("CCCCNH")
    if letter == "N":
        return make.pick([(1,), (), (1, 1, 1, 1)])
    extent = channels if letter == "C" else -1
    return tuple(extent if each == letter else 1 for each in layout)


def result_shape(conv: Term, extents: tuple[int, int]) -> tuple[int, ...]:
    """The shape of an unpadded, undilated convolution of an image of batch 1."""
    weight = conv.children[1]
    assert isinstance(weight, Term)
    op, shape = conv.operator, weight.operator.get("shape")
    axes = axes_of(op)
    sizes = {"N": 1, "C": shape[axes.outputs]}
    for letter, extent, stride, axis in zip("HW", extents, op.get("strides"), axes.kernel):
        sizes[letter] = (extent - shape[axis]) // stride + 1
    return tuple(sizes[letter] for letter in op.get("layout"))


def random_pool(make: CaseMaker, name: str, data: Term, layout: str, **changes: object) -> Term:
    """A random pool of some data."""
    padding = make.pick([(0, 0, 0, 0), (0, 0, 0, 0), (1, 1, 1, 1), (1, 0, 0, 1)])
    attributes: dict[str, object] = {
        "pool_size": make.pick([(2, 2), (3, 3), (2, 3)]),
        "strides": make.pick([(1, 1), (2, 2), (1, 2)]),
        "padding": padding,
        "dilation": (1, 1),
        "ceil_mode": False,
        "count_include_pad": make.chance(0.5),
        "layout": layout,
    }
    return call(name, data, **(attributes | changes))


def random_slice(make: CaseMaker, part: Part, shape: tuple[int, ...]) -> Term:
    """A random slice."""
    axes = sorted(make.rng.choice(len(shape), make.integer(1, len(shape)), replace=False))
    pieces = []
    for axis in axes:
        begin = make.integer(0, shape[axis] - 1)
        end = make.integer(begin + 1, shape[axis])
        pieces.append((int(axis), begin, end, make.pick([1, 1, 2])))
    return sliced(part, pieces)
