# SPDX-License-Identifier: Apache-2.0
"""Random small graphs, on which rules are proved, and what they are made of."""

from dataclasses import dataclass, field

import numpy as np

from tvm_droplet_papers.graph.equality.egraph import EGraph
from tvm_droplet_papers.graph.equality.language import Tensor, Term, constant_leaf, input_leaf
from tvm_droplet_papers.graph.equality.terms import add_term
from tvm_droplet_papers.graph.rules.terms import axes_of, call, permute, reshape, sliced

NO_PADDING = (0, 0, 0, 0)


@dataclass
class Case:
    """A small graph. ``roots``: its results. ``arrays``: the values of its leaves."""

    roots: list
    arrays: dict

    def graph(self, infer):
        graph = EGraph(infer)
        for root in self.roots:
            add_term(graph, root)
        return graph


@dataclass
class CaseMaker:
    """Draws what a case is made of. ``dtype``: the type of all tensors."""

    rng: np.random.Generator
    dtype: str = "float64"
    arrays: dict = field(default_factory=dict)

    def integer(self, low, high):
        """An integer from `low` to `high`."""
        return int(self.rng.integers(low, high + 1))

    def pick(self, options):
        return options[int(self.rng.integers(len(options)))]

    def chance(self, probability):
        return bool(self.rng.random() < probability)

    def input(self, *shape):
        return self._leaf(input_leaf, shape)

    def weight(self, *shape):
        return self._leaf(constant_leaf, shape)

    def case(self, *roots):
        return Case(list(roots), dict(self.arrays))

    def _leaf(self, kind, shape):
        leaf = kind(len(self.arrays), Tensor(shape, self.dtype))
        # Away from zero, so that quotients and roots are tame.
        values = self.rng.uniform(0.5, 1.5, shape) * self.rng.choice([-1.0, 1.0], shape)
        self.arrays[leaf] = np.asarray(values, self.dtype)
        return Term(leaf)

    def image(self, layout, channels, low=5, high=7):
        """A random image."""
        sides = [self.integer(low, high) for _ in range(2)]
        return self.input(*shaped(layout, self.integer(1, 2), channels, *sides))

    def layout(self):
        return self.pick(["NCHW", "NHWC"])

    def convolution(self, data, channels, layout, groups=1, **changes):
        """A random convolution of some data."""
        outputs = groups * self.integer(1, 2)
        sizes = dict(zip("HW", self.pick([(1, 1), (3, 3), (2, 3)])))
        sizes |= {"O": outputs, "I": channels // groups}
        kernel_layout = self.pick(["OIHW", "HWIO"])
        drawn = {
            "padding": self.pick([NO_PADDING, (1, 1, 1, 1), (1, 0, 0, 1)]),
            "strides": self.pick([(1, 1), (2, 2), (1, 2)]),
            "dilation": self.pick([(1, 1), (1, 1), (2, 2)]),
        }
        weight = self.weight(*[sizes[letter] for letter in kernel_layout])
        given = {"groups": groups, "layout": layout, "kernel_layout": kernel_layout}
        return convolution(data, weight, **(drawn | given | changes))

    def pool(self, name, data, layout, **changes):
        """A random pool of some data."""
        drawn = {
            "padding": self.pick([NO_PADDING, NO_PADDING, (1, 1, 1, 1), (1, 0, 0, 1)]),
            "pool_size": self.pick([(2, 2), (3, 3), (2, 3)]),
            "strides": self.pick([(1, 1), (2, 2), (1, 2)]),
            "dilation": (1, 1),
            "ceil_mode": False,
            "count_include_pad": self.chance(0.5),
            "layout": layout,
        }
        return call(name, data, **(drawn | changes))

    def slice(self, part, shape):
        """A random slice."""
        pieces = []
        for axis in sorted(self.rng.choice(len(shape), self.integer(1, len(shape)), replace=False)):
            begin = self.integer(0, shape[axis] - 1)
            end = self.integer(begin + 1, shape[axis])
            pieces.append((int(axis), begin, end, self.pick([1, 1, 2])))
        return sliced(part, pieces)

    def subsample(self, part, shape, layout):
        """A random slice with strides, mostly of the whole image."""
        height, width = layout.index("H"), layout.index("W")
        pieces = []
        for axis in self.pick([(height, width), (width,)]):
            begin = 0 if self.chance(0.8) else 1
            end = shape[axis] - (0 if self.chance(0.8) else 1)
            pieces.append((axis, begin, end, self.pick([1, 2, 2, 3])))
        return sliced(part, pieces)

    def move(self, part):
        """A random move of what has the shape (2, 3, 4)."""
        kind = self.integer(0, 3)
        if kind == 0:
            return reshape(part, *self.pick([(6, 4), (2, 12), (4, 6)]))
        if kind == 1:
            return permute(part, self.pick([(0, 2, 1), (2, 1, 0), (1, 2, 0)]))
        if kind == 2:
            return call("expand_dims", part, axis=(self.integer(0, 3),))
        return self.slice(part, (2, 3, 4))

    def channel_weight(self, shape, layout):
        """A value for each channel; sometimes one for all, or one for each row."""
        letter = self.pick("CCCCNH")
        if letter == "N":
            return self.pick([(1,), (), (1, 1, 1, 1)])
        return tuple(n if each == letter else 1 for n, each in zip(shape, layout, strict=True))


def shaped(layout, batch, channels, height, width):
    """The shape of an image in a layout."""
    sizes = {"N": batch, "C": channels, "H": height, "W": width}
    return tuple(sizes[letter] for letter in layout)


def convolution(data, weight, **changes):
    """A convolution, by default a plain one in NCHW."""
    plain = {
        "strides": (1, 1),
        "padding": NO_PADDING,
        "dilation": (1, 1),
        "groups": 1,
        "layout": "NCHW",
        "kernel_layout": "OIHW",
    }
    return call("conv2d", data, weight, **(plain | changes))


def result_shape(conv, side):
    """The shape of an unpadded, undilated convolution of a square image of batch 1."""
    op, shape = conv.operator, conv.children[1].operator.get("shape")
    axes = axes_of(op)
    sides = [
        (side - shape[axis]) // stride + 1
        for axis, stride in zip(axes.kernel, op.get("strides"), strict=True)
    ]
    return shaped(op.get("layout"), 1, shape[axes.outputs], *sides)
