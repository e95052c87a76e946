# SPDX-License-Identifier: Apache-2.0
"""Sums of products as matrix products: compared with NumPy's ``einsum``."""

import numpy as np
import pytest
from graphs import apply, build, operators

import tvm
from tvm import relax
from tvm_droplet_ms.model.einsums import expand_einsums, explicit_subscripts
from tvm_droplet_ms.model.kernels.attention.fused_attention import find_attentions
from tvm_droplet_ms.model.prepare import prepare_graph

EXTENTS = {"a": 2, "b": 3, "c": 4, "d": 5, "e": 6, "f": 1}


def einsum(subscripts, *letters):
    shapes = [tuple(EXTENTS[letter] for letter in each) for each in letters]

    def body(emit, *operands):
        return emit(relax.op.einsum(operands, subscripts))

    return build(shapes, body), shapes


def run(mod, arrays):
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    return machine["main"](*(tvm.runtime.tensor(array) for array in arrays)).numpy()


@pytest.mark.parametrize("make_pass", [expand_einsums, prepare_graph])
@pytest.mark.parametrize(
    ("subscripts", "left", "right"),
    [
        ("ab,bc->ac", "ab", "bc"),
        ("abcd,abed->abce", "abcd", "abed"),  # scores of an attention
        ("abce,abed->abcd", "abce", "abed"),
        ("acbd,aebd->abce", "acbd", "aebd"),  # batches between rows and columns
        ("abc,cde->abde", "abc", "cde"),  # two axes of columns
        ("abcd,cde->abe", "abcd", "cde"),  # a sum over two axes
        ("abc,dcb->da", "abc", "dcb"),  # the result in another order
        ("abc,abc->a", "abc", "abc"),  # neither rows nor columns
        ("abc,bc->a", "abc", "bc"),
        ("ab,ab->", "ab", "ab"),
        ("bca,dca->dbc", "bca", "dca"),
        ("fab,fbc->fac", "fab", "fbc"),
        ("ab,bc", "ab", "bc"),
        ("...b,...b->...", "acb", "acb"),
        ("...ab, ...bc -> ...ac", "deab", "debc"),
    ],
)
def test_products_are_those_of_numpy(make_pass, subscripts, left, right):
    mod, shapes = einsum(subscripts, left, right)
    after = apply(make_pass(), mod)
    assert operators(after)["relax.matmul"] == 1
    assert "relax.einsum" not in operators(after)
    generator = np.random.default_rng(0)
    arrays = [generator.standard_normal(shape).astype("float32") for shape in shapes]
    np.testing.assert_allclose(run(after, arrays), np.einsum(subscripts, *arrays), rtol=1e-4)


@pytest.mark.parametrize(
    ("subscripts", "letters"),
    [
        ("ab,cd->abcd", ("ab", "cd")),  # no sum
        ("ab,bc->a", ("ab", "bc")),  # a sum over one operand
        ("aa,ab->b", ("aa", "ab")),  # a diagonal
        ("ab,bc,cd->ad", ("ab", "bc", "cd")),
        ("ab->ba", ("ab",)),
        ("...a,ab->...b", ("ca", "ab")),
    ],
)
def test_others_stay_or_are_right(subscripts, letters):
    mod, shapes = einsum(subscripts, *letters)
    after = apply(expand_einsums(), mod)
    generator = np.random.default_rng(0)
    arrays = [generator.standard_normal(shape).astype("float32") for shape in shapes]
    np.testing.assert_allclose(run(after, arrays), np.einsum(subscripts, *arrays), rtol=1e-4)
    assert ("relax.einsum" in operators(after)) == ("..." not in subscripts)


def test_integers_stay():
    def body(emit, *operands):
        return emit(relax.op.einsum(operands, "ab,bc->ac"))

    after = apply(expand_einsums(), build([(2, 3), (3, 4)], body, dtype="int32"))
    assert operators(after)["relax.einsum"] == 1


@pytest.mark.parametrize(
    ("subscripts", "ranks", "expected"),
    [
        ("...a,ab->...b", (3, 2), (["dca", "ab"], "dcb")),
        ("ba,ac", (2, 2), (["ba", "ac"], "bc")),
        ("a...,...a", (2, 3), (["ab", "cba"], "cb")),
        ("ab,bc->ac", (3, 2), None),
        ("ab,bc->ac", (2,), None),
    ],
)
def test_subscripts_without_ellipses(subscripts, ranks, expected):
    assert explicit_subscripts(subscripts, ranks) == expected


def test_an_attention_of_einsums_is_one_kernel():
    def body(emit, queries, keys, values):
        scores = emit(relax.op.einsum((queries, keys), "bihd,bjhd->bhij"))
        weights = emit(relax.op.nn.softmax(emit(relax.op.multiply(scores, relax.const(0.125))), -1))
        return emit(relax.op.einsum((weights, values), "bhij,bjhd->bihd"))

    prepared = apply(prepare_graph(), build([(2, 32, 3, 16)] * 3, body))
    (found,) = find_attentions(prepared["main"]).values()
    assert (found.extents.rows, found.extents.columns, found.extents.depth) == (32, 32, 16)
