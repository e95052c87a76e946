# SPDX-License-Identifier: Apache-2.0
"""The NumPy interpreter against the Relax virtual machine, operator by operator."""

import numpy as np
import pytest
from on_vm import Machine, function_of

from tvm_droplet_papers.graph.equality.language import LEAVES, Tensor, Term, input_leaf, operator
from tvm_droplet_papers.graph.interpreter import OPERATORS, evaluate, infer
from tvm_droplet_papers.graph.relax import operators
from tvm_droplet_papers.graph.relax.types import RelaxTypes

CONV = {"strides": (2, 1), "padding": (1, 0, 2, 1), "dilation": (1, 2), "groups": 1}
CONV |= {"layout": "NCHW", "kernel_layout": "OIHW"}
POOL = {"pool_size": (3, 2), "strides": (2, 1), "padding": (1, 0, 1, 1), "dilation": (1, 1)}
POOL |= {"ceil_mode": False, "count_include_pad": False, "layout": "NCHW"}
NORM = {"axis": 1, "epsilon": 1e-3, "center": True, "scale": True, "momentum": 0.1}
IMAGE = (1, 4, 9, 8)
SLICE = {"axes": (1, 2), "begin": (1, 0), "end": (6, 7), "strides": (2, 3)}

CASES = [
    *[(operator(n), [(2, 3), (2, 3)]) for n in ("add", "subtract", "multiply", "divide")],
    *[(operator(n), [(2, 3), (3,)]) for n in ("maximum", "minimum", "power", "add")],
    *[(operator(n), [(2, 3)]) for n in ("relu", "gelu", "silu", "sigmoid", "tanh", "sqrt")],
    *[(operator(n), [(2, 3)]) for n in ("exp", "erf", "negative")],
    (operator("clip", min=0.6, max=1.1), [(2, 3)]),
    (operator("conv2d", **CONV), [IMAGE, (6, 4, 3, 2)]),
    (operator("conv2d", **CONV).replaced(groups=2), [IMAGE, (6, 2, 3, 2)]),
    (
        operator("conv2d", **CONV).replaced(layout="NHWC", kernel_layout="HWIO"),
        [(2, 9, 8, 4), (3, 2, 4, 6)],
    ),
    (
        operator("conv2d", **CONV).replaced(layout="NHWC", kernel_layout="HWIO", groups=4),
        [(2, 9, 8, 4), (3, 2, 1, 8)],
    ),
    (operator("max_pool2d", **POOL), [IMAGE]),
    (operator("max_pool2d", **POOL).replaced(ceil_mode=True, padding=(0, 0, 0, 0)), [IMAGE]),
    (operator("avg_pool2d", **POOL), [IMAGE]),
    (operator("avg_pool2d", **POOL).replaced(layout="NHWC", count_include_pad=True), [IMAGE]),
    (operator("avg_pool2d", **POOL).replaced(ceil_mode=True, padding=(0, 0, 0, 0)), [IMAGE]),
    # Its last windows reach beyond the image: what is not there is not counted.
    (
        operator("avg_pool2d", **POOL).replaced(
            ceil_mode=True, padding=(0, 0, 0, 0), strides=(4, 1), count_include_pad=True
        ),
        [IMAGE],
    ),
    (operator("batch_norm", training=False, **NORM), [IMAGE, (4,), (4,), (4,), (4,)]),
    (operator("batch_norm", training=False, **(NORM | {"scale": False})), [IMAGE] + [(4,)] * 4),
    (operator("layer_norm", axes=(1, 2), epsilon=1e-3), [(2, 3, 4), (3, 4), (3, 4)]),
    (operator("softmax", axis=1), [(2, 5, 3)]),
    (operator("matmul"), [(2, 3, 4), (4, 5)]),
    (operator("matmul"), [(1, 3, 4), (2, 4, 5)]),
    (operator("matmul"), [(2, 3, 4), (4,)]),
    (operator("einsum", subscripts="axk,kay->yax"), [(2, 3, 4), (4, 2, 5)]),
    (operator("sum", axis=(0, 2), keepdims=False), [(2, 3, 4)]),
    (operator("mean", axis=(1,), keepdims=True), [(2, 3, 4)]),
    (operator("concat", axis=1), [(2, 3), (2, 1), (2, 4)]),
    (operator("stack", axis=1), [(2, 3), (2, 3)]),
    (operator("strided_slice", **SLICE), [(2, 7, 8)]),
    (operator("split", axis=1, sections=(1, 4)), [(2, 6)]),
    (operator("reshape", shape=(3, 4)), [(2, 6)]),
    (operator("permute_dims", axes=(2, 0, 1)), [(2, 3, 4)]),
    (operator("expand_dims", axis=(0, 2)), [(2, 3)]),
    (operator("squeeze", axis=(0, 2)), [(1, 3, 1, 1)]),
    (operator("broadcast_to", shape=(2, 4, 3)), [(4, 1)]),
    (operator("pad", widths=((0, 1), (2, 0)), value=1.5), [(2, 3)]),
]


def arrays_of(shapes):
    rng = np.random.default_rng(0)
    return [rng.uniform(0.5, 1.5, shape).astype("float32") for shape in shapes]


@pytest.fixture(scope="module")
def machine():
    functions = {}
    for number, (op, shapes) in enumerate(CASES):
        types = [Tensor(shape, "float32") for shape in shapes]
        leaves = [input_leaf(index, type_) for index, type_ in enumerate(types)]
        term = Term(op, tuple(map(Term, leaves)))
        functions[f"f{number}"] = function_of(term, list(zip(leaves, types)))
    return Machine(functions)


@pytest.mark.parametrize("number", range(len(CASES)), ids=[op.name for op, _ in CASES])
def test_interpreter_computes_what_the_machine_does(machine, number):
    op, shapes = CASES[number]
    arrays = arrays_of(shapes)
    expected = machine.run(f"f{number}", arrays)
    actual = evaluate(op, [array.astype("float64") for array in arrays])
    pairs = zip(expected, actual) if isinstance(expected, tuple) else [(expected, actual)]
    for one, other in pairs:
        assert one.shape == other.shape
        np.testing.assert_allclose(other, one, rtol=0, atol=2e-6 * np.abs(one).max())


@pytest.mark.parametrize(("op", "shapes"), CASES, ids=[op.name for op, _ in CASES])
def test_types_are_those_of_relax(op, shapes):
    types = tuple(Tensor(shape, "float32") for shape in shapes)
    assert RelaxTypes()(op, types) == infer(op, types) is not None


def test_every_operator_is_compared():
    compared = {op.name for op, _ in CASES}
    # The machine has no kernel of dropout, and "get" is no operator of Relax.
    assert set(operators._TABLE) == compared | {"dropout"}
    assert set(OPERATORS) - LEAVES == compared | {"dropout", "get", "relu6"}
