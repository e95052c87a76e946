# SPDX-License-Identifier: Apache-2.0
"""A random case for every rule, in which each of its conditions is sometimes broken."""

import zlib
from functools import partial

import numpy as np
from case_maker import NO_PADDING, CaseMaker, convolution, result_shape, shaped

from tvm_droplet_papers.graph.equality.egraph import IllegalTerm
from tvm_droplet_papers.graph.rules.terms import call, concat, permute, reshape, sliced

ROWS_AND_COLUMNS = [(3,), (2, 1), (1,), (2, 3)]


def batch_norm(make):
    channels = make.integer(1, 3)
    shape = [make.integer(1, 3), channels, 2, make.integer(1, 3)]
    axis = make.pick([1, 3])
    shape[1], shape[axis] = shape[axis], shape[1]
    statistics = [make.weight(channels) for _ in range(3)]
    variance = call("multiply", *[make.weight(channels)] * 2)
    options = {name: make.chance(0.7) for name in ("center", "scale")}
    options |= {"epsilon": 1e-3, "momentum": 0.1, "training": make.chance(0.2)}
    norm = call("batch_norm", make.input(*shape), *statistics, variance, axis=axis, **options)
    return make.case(call("get", norm, index=0))


def dropout(make):
    dropped = call("dropout", make.input(2, 3), rate=0.5)
    return make.case(call("get", dropped, index=make.pick([0, 0, 1])))


def split(make):
    sections = make.pick([(1,), (2, 3), (1, 4)])
    parts = call("split", make.input(5, 6), axis=make.integer(0, 1), sections=sections)
    return make.case(*[call("get", parts, index=i) for i in range(len(sections) + 1)])


def stacked_sum(make):
    parts = [make.input(3, 3) for _ in range(make.integer(1, 3))]
    stack = call("stack", *parts, axis=make.pick([0, 1]))
    axes = make.pick([(0,), (1,), (1,), (0, 1)])
    return make.case(call("sum", stack, axis=axes, keepdims=make.chance(0.3)))


def by_weight(name, make):
    operands = [make.input(2, 3), make.weight(3)]
    return make.case(call(name, *(operands if make.chance(0.8) else operands[::-1])))


def nested(make):
    first, second = (make.pick(["add", "multiply"]) for _ in range(2))
    inner = call(first, make.input(2, 3), make.weight(*make.pick(ROWS_AND_COLUMNS)))
    return make.case(call(second, make.weight(*make.pick(ROWS_AND_COLUMNS)), inner))


def distributed(make):
    inner = call("add", make.input(2, 3), make.weight(*make.pick(ROWS_AND_COLUMNS)))
    return make.case(call("multiply", inner, make.weight(*make.pick(ROWS_AND_COLUMNS))))


def outer_shift(make):
    inner = call("add", make.input(2, 3), make.weight(*make.pick([(3,), (2, 1), (2, 3)])))
    return make.case(call("add", inner, make.input(*make.pick([(2, 3), (1, 3)]))))


def layer_norm(make):
    axes = make.pick([(1,), (1,), (0,), (0, 1)])
    affine = [make.weight(*[3] * len(axes)) for _ in range(2)]
    return make.case(call("layer_norm", make.input(3, 3), *affine, axes=axes, epsilon=1e-3))


def scaled_convolution(make):
    layout = make.layout()
    data = make.input(*shaped(layout, 1, 2, 6, 6))
    groups = make.pick([1, 2])
    conv = make.convolution(data, 2, layout, groups, padding=NO_PADDING, dilation=(1, 1))
    scale = make.channel_weight(result_shape(conv, 6), layout)
    return make.case(call("multiply", conv, make.weight(*(1,) * make.chance(0.1), *scale)))


def convolution_of(name, make):
    layout = make.layout()
    data = make.image(layout, 4, low=4)
    weight = make.weight(*make.channel_weight(data.operator.get("shape"), layout))
    groups = make.pick([1, 1, 1, 2, 4])
    return make.case(make.convolution(call(name, data, weight), 4, layout, groups))


def scaled_matmul(make):
    rows = make.pick([2, 4])
    product = call("matmul", make.input(rows, 3), make.weight(3, 4))
    shape = make.pick([(4,), (1,), (), (1, 4), (rows, 1), (rows, 4), (1, 1, 4)])
    return make.case(call("multiply", product, make.weight(*shape)))


def scaled_data(make):
    shape = make.pick([(3,), (1,), (), (1, 3), (3, 1)])
    inner = call("multiply", make.input(3, 3), make.weight(*shape))
    return make.case(call("matmul", inner, make.weight(3, 4)))


def matmul_of_shifted(make):
    inner = call("add", make.input(2, 3), make.weight(*make.pick([(3,), (1, 3), (2, 3), (2, 1)])))
    return make.case(call("matmul", inner, make.weight(*make.pick([(3, 4)] * 3 + [(2, 3, 4)]))))


def scalar_of_product(make):
    product = call("matmul", make.input(3, 3), make.input(*make.pick([(3, 3), (3, 3), (3,)])))
    shape = make.pick([(), (1,), (1, 1), (3,), (3, 1)])
    return make.case(call("multiply", product, make.weight(*shape)))


def sum_of_kernels(make):
    data = make.image("NCHW", 2, low=3, high=5)
    kinds = [((3, 3), 1, 1), ((3, 3), 2, 2), ((1, 1), 0, 1), ((3, 3), 0, 1)]
    kind = make.pick(kinds)
    branches = []
    for kernel, padding, dilation in (kind, kind if make.chance(0.5) else make.pick(kinds)):
        options = {"padding": (padding,) * 4, "dilation": (dilation,) * 2}
        branches.append(convolution(data, make.weight(3, 2, *kernel), **options))
    return make.case(call("add", *branches))


def sum_of_images(make):
    weight = make.weight(3, 2, 3, 3)
    branches = []
    for extent in [make.pick([(4, 4), (4, 4), (1, 1)]) for _ in range(2)]:
        reach = make.pick([1, 1, 2])
        options = {"padding": (reach,) * 4, "dilation": (reach,) * 2}
        branches.append(convolution(make.input(1, 2, *extent), weight, **options))
    return make.case(call("add", *branches))


def sum_of_right_sides(make):
    data = make.input(2, 2)
    weights = [make.weight(*make.pick([(2, 2), (2, 2), (2,)])) for _ in range(2)]
    return make.case(call("add", *[call("matmul", data, weight) for weight in weights]))


def sum_of_left_sides(make):
    weight = make.weight(*make.pick([(3, 4), (3, 4), (3, 4), (2, 3, 4)]))
    inputs = [make.input(*make.pick([(3,), (2, 3), (1, 3), (2, 2, 3)])) for _ in range(2)]
    return make.case(call("add", *[call("matmul", data, weight) for data in inputs]))


def enlarged(make):
    data = make.image("NHWC", 2)
    step = make.pick([1, 1, 2])
    shared = {"strides": make.pick([(1, 1), (2, 2)]), "layout": "NHWC", "kernel_layout": "HWIO"}
    roots = []
    for kernel, dilation in ((make.pick([(1, 1), (1, 3)]), make.pick([1, 1, 2])), ((3, 3), step)):
        rings = [(3 - extent) // 2 for extent in kernel]
        padding = tuple(2 - ring * step for ring in rings) * 2
        options = {"padding": padding, "dilation": (dilation,) * 2, **shared}
        roots.append(convolution(data, make.weight(*kernel, 2, 2), **options))
    return make.case(*roots)


def identity(make):
    layout = make.layout()
    side = make.pick([4, 4, 3, 2])
    shape = shaped(layout, 1, 4, side, side)
    data, groups = make.input(*shape), make.pick([1, 1, 1, 2])
    # With the last one, a stride of two leaves an image as large as it was, and with the one before
    # it one of 2x2 becomes one of 1x1.
    paddings = [(1, 1, 1, 1)] * 3 + [(0, 0, 2, 2), (1, 1, 0, 0), (1, 1, 4, 4)]
    kernel, padding = make.pick([((3, 3), each) for each in paddings] + [((1, 1), NO_PADDING)])
    options = {"strides": make.pick([(1, 1), (1, 1), (1, 1), (2, 2)]), "padding": padding}
    kernel_layout = make.pick(["OIHW", "HWIO"])
    sizes = {"O": 4, "I": 4 // groups, "H": kernel[0], "W": kernel[1]}
    weight = make.weight(*[sizes[letter] for letter in kernel_layout])
    options |= {"groups": groups, "layout": layout, "kernel_layout": kernel_layout}
    conv = convolution(data, weight, **options)
    if make.chance(0.4):
        return make.case(call("add", conv, data))
    pairs = zip(shape, layout, strict=True)
    scale = tuple(extent if letter == make.pick("CCH") else 1 for extent, letter in pairs)
    scale = (1,) * 5 if make.chance(0.2) else scale
    return make.case(call("add", conv, call("multiply", data, make.weight(*scale))))


def product_of_weights(make):
    if make.chance(0.4):
        inner = call("matmul", make.input(2, 4, 4), make.weight(4))
        return make.case(call("matmul", inner, make.weight(4, 4)))
    inner = call("matmul", make.input(*make.pick([(2, 3), (2, 2, 3)])), make.weight(3, 5))
    return make.case(call("matmul", inner, make.weight(5, 4)))


def product_of_factors(make):
    if make.chance(0.4):
        product = call("matmul", make.weight(4), make.weight(4, 4))
        return make.case(call("matmul", make.input(2, 4, 4), product))
    product = call("matmul", make.weight(3, 5), make.weight(5, 4))
    return make.case(call("matmul", make.input(*make.pick([(2, 3), (2, 2, 3)])), product))


def common_factor(make):
    data = make.input(2, 3)
    other = data if make.chance(0.7) else make.input(2, 3)
    left, right = (make.weight(*make.pick(ROWS_AND_COLUMNS[:3])) for _ in range(2))
    return make.case(call("add", call("multiply", data, left), call("multiply", right, other)))


def pooled(pool_first, make):
    layout = make.layout()
    other = layout if make.chance(0.8) else make.layout()
    data = make.input(*shaped(layout, 4, 4, 6, 6))

    def conv(source):
        options = {}
        if make.chance(0.3):
            options["strides"] = make.pick([(1, 1), (2, 2)])
            options["padding"] = make.pick([(1, 1, 1, 1), NO_PADDING])
        kernel = make.pick([(1, 1), (1, 1), (1, 1), (3, 3), (2, 2)])
        return convolution(source, make.weight(4, 4, *kernel), layout=layout, **options)

    if pool_first:
        return make.case(conv(make.pool("avg_pool2d", data, other)))
    return make.case(make.pool("avg_pool2d", conv(data), other))


def pool_of(name, make):
    layout = make.layout()
    data = make.input(*shaped(layout, 1, 3, 5, 5))
    letters = make.pick(["C", "C", "C", "H", "CHW", ""])
    sizes = dict(zip(layout, shaped(layout, 1, 3, 5, 5), strict=True))
    weight = make.weight(*[sizes[letter] if letter in letters else 1 for letter in layout])
    kind = make.pick(["avg_pool2d", "avg_pool2d", "max_pool2d"])
    options = {"strides": (1, 1), "pool_size": (3, 3)}
    return make.case(make.pool(kind, call(name, data, weight), layout, **options))


def stride_up(make):
    layout = make.layout()
    changes = {} if make.chance(0.4) else {"padding": NO_PADDING}
    return make.case(make.convolution(make.image(layout, 2), 2, layout, 1, **changes))


def stride_back(make):
    layout = make.layout()
    data = make.image(layout, 2, low=7, high=9)
    pieces = make.subsample(data, data.operator.get("shape"), layout)
    kind = make.pick(["kernel", "padding", "", "", ""])
    extent = 2 if kind == "kernel" else 1
    padding = (1, 1, 1, 1) if kind == "padding" else NO_PADDING
    options = {"strides": make.pick([(1, 1), (2, 2)]), "padding": padding, "layout": layout}
    return make.case(convolution(pieces, make.weight(2, 2, extent, extent), **options))


def stride_into_convolution(make):
    layout, stride, groups = make.layout(), make.pick([1, 2]), make.pick([1, 2])
    data, weight = make.input(*shaped(layout, 1, 2, 9, 9)), make.weight(2, 2 // groups, 3, 3)
    options = {"padding": (1, 1, 1, 1), "groups": groups, "layout": layout}
    conv = convolution(data, weight, strides=(stride, stride), **options)
    side = 9 if stride == 1 else 5
    return make.case(make.subsample(conv, shaped(layout, 1, 2, side, side), layout))


def stride_into_pool(name, make):
    layout = make.layout()
    ceil, side = make.chance(0.3), make.pick([8, 9])
    options = {"pool_size": (3, 3), "strides": (2, 2), "padding": NO_PADDING, "ceil_mode": ceil}
    data = make.input(*shaped(layout, 1, 2, side, side))
    pool = make.pool(name, data, layout, count_include_pad=False, **options)
    out = -(-(side - 3) // 2) + 1 if ceil else (side - 3) // 2 + 1
    return make.case(make.subsample(pool, shaped(layout, 1, 2, out, out), layout))


def products_of_one_value(make):
    data = make.input(*make.pick([(2, 3), (2, 2, 3)]))
    weights = [make.weight(3, make.integer(1, 4)) for _ in range(make.integer(2, 4))]
    return make.case(*[call("matmul", data, weight) for weight in weights])


def products_by_one_weight(make):
    weight = make.weight(*make.pick([(3, 4), (3, 4), (3, 4), (2, 3, 4)]))
    batch = make.pick([(), (), (2,)])
    inputs = [make.input(*batch, make.integer(1, 3), 3) for _ in range(make.integer(2, 4))]
    return make.case(*[call("matmul", data, weight) for data in inputs])


def sum_of_products(make):
    columns = make.integer(1, 4)
    shapes = [make.pick([(2, 3), (2, 4), (1, 3), (2, 2, 3)]) for _ in range(2)]
    terms = [
        call("matmul", make.input(*shape), make.weight(shape[-1], columns)) for shape in shapes
    ]
    return make.case(call("add", *terms))


def reach_of(make):
    reach = make.pick([1, 2])
    return {"padding": (reach,) * 4, "dilation": (reach,) * 2}


def convolutions_of_one_image(make):
    layout = make.layout()
    data, alike, groups = make.image(layout, 4), make.chance(0.7), make.pick([1, 1, 1, 2])
    options = reach_of(make)
    roots = []
    for _ in range(make.integer(2, 3)):
        options = options if alike else reach_of(make)
        weight = make.weight(2 * make.integer(1, 2), 4 // groups, 3, 3)
        roots.append(convolution(data, weight, groups=groups, layout=layout, **options))
    return make.case(*roots)


def groups_halved(make):
    layout = make.layout()
    groups = make.pick([2, 3, 4])
    inputs, outputs = groups * make.integer(1, 2), groups * make.integer(1, 2)
    data, kernel_layout = make.image(layout, inputs), make.pick(["OIHW", "HWIO"])
    sizes = {"O": outputs, "I": inputs // groups, "H": 3, "W": 1}
    weight = make.weight(*[sizes[letter] for letter in kernel_layout])
    options = {"groups": groups, "layout": layout, "kernel_layout": kernel_layout}
    return make.case(convolution(data, weight, **options, **reach_of(make)))


def slice_of_elementwise(make):
    data = make.input(3, 4, 5)
    if make.chance(0.3):
        return make.case(make.slice(call(make.pick(["relu", "tanh"]), data), (3, 4, 5)))
    other = make.input(*make.pick([(3, 4, 5), (5,), (4, 1), (1, 4, 5), ()]))
    value = call(make.pick(["add", "subtract", "multiply"]), data, other)
    return make.case(make.slice(value, (3, 4, 5)))


def unary(inside, make):
    name, data = make.pick(["relu", "tanh", "sigmoid"]), make.input(2, 3, 4)
    return make.case(make.move(call(name, data)) if inside else call(name, make.move(data)))


def scalar_of_move(make):
    moved = permute(make.input(3, 3), (1, 0)) if make.chance(0.5) else None
    moved = moved or reshape(make.input(3, 6), 6, 3)
    return make.case(call("multiply", moved, make.weight(*make.pick([(), (1,), (1, 1), (3,)]))))


def side_by_side(make, axis, count):
    extents = [make.integer(1, 3) for _ in range(count)]
    return [make.input(*[n if each == axis else 3 for each in range(2)]) for n in extents], extents


def unary_of_concat(make):
    axis = make.integer(0, 1)
    parts, _ = side_by_side(make, axis, 3)
    return make.case(call(make.pick(["relu", "tanh"]), concat(parts, axis)))


def concat_of_unary(make):
    first = make.pick(["relu", "tanh"])
    parts = []
    for _ in range(make.integer(2, 3)):
        name = first if make.chance(0.8) else make.pick(["relu", "tanh"])
        parts.append(call(name, make.input(3, make.integer(1, 3))))
    return make.case(concat(parts, 1))


def useless_broadcast(make):
    wide = call("broadcast_to", make.input(*make.pick([(2, 3), (1, 3), (3,)])), shape=(2, 3))
    if make.chance(0.3):
        return make.case(wide)
    other = make.input(*make.pick([(2, 3), (2, 3), (2, 1), (1, 3), (3,)]))
    return make.case(call(make.pick(["add", "divide"]), other, wide))


def nested_permute(make):
    orders = [(0, 1, 2), (0, 2, 1), (2, 1, 0), (1, 2, 0), (2, 0, 1)]
    return make.case(permute(permute(make.input(2, 3, 4), make.pick(orders)), make.pick(orders)))


def nested_reshape(make):
    shapes = [(6, 4), (2, 12), (2, 3, 4), (24,)]
    value = make.input(*make.pick(shapes))
    for _ in range(make.integer(1, 2)):
        value = reshape(value, *make.pick(shapes))
    if make.chance(0.3):
        value = call("squeeze", call("expand_dims", value, axis=(0,)), axis=(0,))
    return make.case(value)


def slice_of_concat(make):
    axis = make.integer(0, 1)
    parts, extents = side_by_side(make, axis, make.integer(2, 3))
    shape = tuple(sum(extents) if each == axis else 3 for each in range(2))
    return make.case(make.slice(concat(parts, axis), shape))


def whole_slice(make):
    piece = (make.integer(0, 1), make.pick([0, 0, 0, 1]), make.pick([2, 3, 3]), 1)
    return make.case(sliced(make.input(3, 3), [piece]))


def nested_slice(make):
    first = make.integer(0, 2)
    piece = (0, first, make.integer(first + 3, 8), make.pick([1, 1, 2]))
    return make.case(make.slice(sliced(make.input(8, 4), [piece]), (2, 4)))


def concat_of_slices(make):
    data, other = make.input(6, 2), make.input(6, 2)
    parts, place = [], make.integer(0, 1)
    for _ in range(make.integer(2, 3)):
        begin = place if make.chance(0.8) else make.integer(0, 3)
        end = begin + make.integer(1, 2)
        source = data if make.chance(0.85) else other
        parts.append(sliced(source, [(0, begin, min(end, 6), 1)]))
        place = min(end, 5)
    return make.case(concat(parts, 0))


def plain_convolution(make, data, layout, groups=1):
    options = {"strides": make.pick([(1, 1), (2, 1)]), "groups": groups, "layout": layout}
    padding = make.pick([NO_PADDING, (1, 0, 1, 1)])
    return convolution(data, make.weight(2 * groups, 2, 3, 3), padding=padding, **options)


def pad(make):
    layout = make.layout()
    widths = {letter: (make.integer(0, 1), make.integer(0, 2)) for letter in "HW"}
    widths["N"] = make.pick([(0, 0), (0, 0), (0, 0), (1, 0)])
    around = tuple(widths.get(letter, (0, 0)) for letter in layout)
    data = make.input(*shaped(layout, 1, 2, 4, 5))
    padded = call("pad", data, widths=around, value=make.pick([0.0, 0.0, 0.0, 1.0]))
    return make.case(plain_convolution(make, padded, layout))


def convolution_of_concat(make):
    layout, groups = make.layout(), make.pick([1, 1, 1, 2])
    axis = layout.index("C" if make.chance(0.8) else "H")
    shape = shaped(layout, 1, 2 * groups, 4, 5)
    halves = (shape[axis] // 2, shape[axis] - shape[axis] // 2)
    parts = [make.input(*shape[:axis], extent, *shape[axis + 1 :]) for extent in halves]
    return make.case(plain_convolution(make, concat(parts, axis), layout, groups))


def product_of_permuted(make):
    batch = make.pick([2, 2, 1])
    left, right = make.input(batch, 3, 4), make.input(2, 4, 5)
    if make.chance(0.6):
        left = permute(make.input(3, batch, 4), (1, 0, 2))
    if make.chance(0.6):
        right = permute(make.input(5, 2, 4), (1, 2, 0))
    return make.case(call("matmul", left, right))


def permuted_einsum(make):
    subscripts = f"axk,ky->{make.pick(['axy', 'xay', 'yxa'])}"
    product = call("einsum", make.input(2, 3, 4), make.input(4, 5), subscripts=subscripts)
    return make.case(permute(product, make.pick([(0, 2, 1), (1, 0, 2), (2, 0, 1)])))


CASES = {
    "batch norm is affine": batch_norm,
    "dropout is nothing": dropout,
    "split is slices": split,
    "sum of a stack": stacked_sum,
    "subtraction of a weight": partial(by_weight, "subtract"),
    "division by a weight": partial(by_weight, "divide"),
    "nested weights": nested,
    "scale of a shifted value": distributed,
    "shifts go outwards": outer_shift,
    "affine of a layer norm": layer_norm,
    "scale after convolution": scaled_convolution,
    "scale before convolution": partial(convolution_of, "multiply"),
    "shift before convolution": partial(convolution_of, "add"),
    "scale after product": scaled_matmul,
    "scale before product": scaled_data,
    "shift before product": matmul_of_shifted,
    "scalar of a product": scalar_of_product,
    "sum of kernels": sum_of_kernels,
    "sum of images": sum_of_images,
    "sum of right sides": sum_of_right_sides,
    "sum of left sides": sum_of_left_sides,
    "kernel like a sibling's": enlarged,
    "identity branch": identity,
    "product of weights": product_of_weights,
    "product of factors": product_of_factors,
    "common factor": common_factor,
    "pool before convolution": partial(pooled, False),
    "pool after convolution": partial(pooled, True),
    "shift through pool": partial(pool_of, "add"),
    "scale through pool": partial(pool_of, "multiply"),
    "stride up": stride_up,
    "stride back": stride_back,
    "stride into convolution": stride_into_convolution,
    "stride into average": partial(stride_into_pool, "avg_pool2d"),
    "stride into maximum": partial(stride_into_pool, "max_pool2d"),
    "products of one value": products_of_one_value,
    "products by one weight": products_by_one_weight,
    "sum of products": sum_of_products,
    "convolutions of one image": convolutions_of_one_image,
    "groups halved": groups_halved,
    "slice of elementwise": slice_of_elementwise,
    "move of unary": partial(unary, True),
    "unary of move": partial(unary, False),
    "scalar of move": scalar_of_move,
    "unary of concat": unary_of_concat,
    "concat of unary": concat_of_unary,
    "useless broadcast": useless_broadcast,
    "transpose of transpose": nested_permute,
    "reshape of reshape": nested_reshape,
    "slice of concat": slice_of_concat,
    "slice of everything": whole_slice,
    "slice of slice": nested_slice,
    "concat of slices": concat_of_slices,
    "pad into convolution": pad,
    "convolution of concat": convolution_of_concat,
    "transposes into product": product_of_permuted,
    "transpose into einsum": permuted_einsum,
}


def cases(rule, infer, dtype="float64"):
    """Endless cases of a rule that are legal, with their e-graphs."""
    rng = np.random.default_rng(zlib.crc32(rule.name.encode()))
    while True:
        case = CASES[rule.name](CaseMaker(rng, dtype))
        try:
            graph = case.graph(infer)
        except IllegalTerm:
            continue
        graph.rebuild()
        yield case, graph
