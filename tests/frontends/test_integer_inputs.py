# SPDX-License-Identifier: Apache-2.0
"""Integer inputs are drawn over what they can be."""

import numpy as np
import pytest

from tvm import relax
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R
from tvm_droplet_ms.frontends.imported import InputSpec, check_inputs
from tvm_droplet_ms.frontends.integer_inputs import IntegerUse, integer_uses


@I.ir_module
class Embedding:
    @R.function
    def main(
        ids: R.Tensor((1, 400), "int64"),
        kinds: R.Tensor((1, 400), "int32"),
        mask: R.Tensor((1, 400), "int64"),
        rate: R.Tensor((), "int64"),
        other: R.Tensor((7,), "int64"),
        words: R.Tensor((30, 4), "float32"),
    ):
        R.func_attr({"num_input": 6})
        with R.dataflow():
            below = R.less(ids, R.const(0, "int64"))
            above = R.add(ids, R.const(30, "int64"))
            wrapped = R.where(below, above, ids)
            flat = R.reshape(R.astype(wrapped, "int32"), (400,))
            words_of = R.take(words, flat, axis=0)
            kinds_of = R.one_hot(kinds, R.prim_value(1.0), R.prim_value(0.0), depth=3)
            kept = R.astype(mask, "float32")
            slow = R.equal(rate, R.const(8000, "int64"))
            fast = R.not_equal(rate, R.const(16000, "int64"))
            counted = R.multiply(other, other)
            result = (words_of, kinds_of, kept, slow, fast, counted)
            R.output(result)
        return result


@pytest.fixture(scope="module")
def uses():
    return dict(zip(("ids", "kinds", "mask", "rate", "other"), integer_uses(Embedding)))


def drawn(use, shape=(1, 400)):
    return use.random(shape, np.random.default_rng(0))


def test_an_index_is_drawn_over_the_rows_of_its_table(uses):
    assert uses["ids"].extent == 30
    assert set(drawn(uses["ids"]).ravel()) == set(range(30))
    assert set(drawn(uses["kinds"]).ravel()) == set(range(3))


def test_the_least_table_counts():
    @I.ir_module
    class Two:
        @R.function
        def main(
            ids: R.Tensor((9,), "int64"),
            long: R.Tensor((30, 4), "float32"),
            short: R.Tensor((5, 4), "float32"),
        ):
            with R.dataflow():
                result = R.add(R.take(long, ids, axis=0), R.take(short, ids, axis=0))
                R.output(result)
            return result

    assert integer_uses(Two)[0].extent == 5


def test_a_place_that_is_part_of_another_one_stays_within_its_axis():
    """``table[row, column]`` of 4 x 5 as a place among 20, as an importer writes it."""

    @I.ir_module
    class Flat:
        @R.function
        def main(
            row: R.Tensor((9,), "int64"),
            column: R.Tensor((9,), "int64"),
            table: R.Tensor((20,), "float32"),
        ):
            with R.dataflow():
                above = R.less(column, R.const(0, "int64"))
                more = R.add(column, R.const(5, "int64"))
                wrapped = R.where(above, more, column)
                place = R.add(R.multiply(row, R.const(5, "int64")), wrapped)
                result = R.take(table, place, axis=0)
                R.output(result)
            return result

    assert integer_uses(Flat)[1].extent == 5


def test_a_mask_starts_with_ones(uses):
    mask = drawn(uses["mask"], (40, 9))
    assert set(mask.ravel()) == {0, 1} and (mask[:, 0] == 1).all()


def test_a_value_that_is_compared_is_one_of_the_constants(uses):
    assert drawn(uses["rate"], ()).shape == ()
    assert set(drawn(uses["rate"], (50,))) == {8000, 16000}


def test_many_constants_are_a_range():
    use = IntegerUse(equals=set(range(256)))
    assert set(drawn(use, (5000,))) == set(range(256))


def test_anything_else_is_safe_as_an_index(uses):
    assert set(drawn(uses["other"], (50,))) == {0, 1}


def test_bytes_without_a_known_use_have_their_whole_range():
    generator = np.random.default_rng(0)
    for dtype, least, most in (("int8", -128, 127), ("uint8", 0, 255)):
        drawn = InputSpec("x", (4000,), dtype).random(generator)
        assert (drawn.dtype, drawn.min(), drawn.max()) == (dtype, least, most)
    mask = InputSpec("x", (4000,), "uint8", IntegerUse(is_mask=True)).random(generator)
    assert set(mask) == {0, 1}


def test_inputs_of_floating_point_numbers_have_no_use():
    assert integer_uses(Embedding)[5] == IntegerUse()


def test_equal_names_are_told_apart():
    first = relax.Var("x", R.Tensor((2,), "float32"))
    second = relax.Var("x", R.Tensor((2,), "float32"))
    third = relax.Var("x_1", R.Tensor((2,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [first, second, third]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.subtract(first, relax.op.add(second, third)))
        builder.emit_func_output(result)
    names = [spec.name for spec in check_inputs(IRModule(builder.get().functions))]
    assert names == ["x", "x_2", "x_1"]


def test_a_divisor_is_never_zero():
    @I.ir_module
    class Divided:
        @R.function
        def main(
            x: R.Tensor((4, 8), "int64"), y: R.Tensor((4, 8), "int64"), z: R.Tensor((4, 8), "int64")
        ):
            R.func_attr({"num_input": 3})
            with R.dataflow():
                result = R.mod(R.divide(x, y), R.reshape(z, (4, 8)))
                R.output(result)
            return result

    found = [set(drawn(use, (40, 80)).ravel()) for use in integer_uses(Divided)]
    assert found[0] == {0, 1}
    assert found[1] == found[2] == set(range(1, 10))


def test_a_length_is_drawn_up_to_what_it_is_compared_with():
    @I.ir_module
    class Length:
        @R.function
        def main(x: R.Tensor((2, 1), "int64"), y: R.Tensor((2, 1), "int64")):
            R.func_attr({"num_input": 2})
            with R.dataflow():
                seen = R.less(R.const([0, 1, 2, 3, 4], "int64"), x)
                bounded = R.minimum(y, R.const(6, "int64"))
                result = (seen, bounded)
                R.output(result)
            return result

    found = [set(drawn(use, (40, 80)).ravel()) for use in integer_uses(Length)]
    assert found == [{1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5, 6}]
