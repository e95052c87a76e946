# SPDX-License-Identifier: Apache-2.0
"""The check allows what the reference itself cannot know, and nothing else."""

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto
from onnx_graphs import FLOAT, model, node

from tvm import relax
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R
from tvm_droplet_ms.frontends.imported import ImportedModel, InputSpec, Reference
from tvm_droplet_ms.frontends.onnx.importing import import_onnx
from tvm_droplet_ms.measure.deviation import largest_deviation
from tvm_droplet_ms.tuning.check.output_bounds import Bound, output_bounds, output_steps
from tvm_droplet_ms.tuning.check.output_check import ROUNDINGS, OutputCheck, make_check, moved_runs

TOLERANCE = 1e-4
UINT8 = TensorProto.UINT8
X = np.random.default_rng(0).standard_normal((4, 16)).astype("float32")


def check_of(run, inputs=(X,), bounds=()):
    return OutputCheck(Reference("NumPy", run), (inputs,), (run(inputs),), TOLERANCE, bounds)


HALF = 1e4 * np.random.default_rng(1).standard_normal((16, 32))
WEIGHT = np.concatenate([HALF, HALF + np.random.default_rng(2).standard_normal((16, 32))], axis=1)
SIGNS = np.repeat([1.0, -1.0], 32).reshape(64, 1) * np.ones((1, 8))


def cancelling(inputs, dtype="float32"):
    """Numbers near 1e4 whose difference is near 1."""
    hidden = inputs[0].astype(dtype) @ WEIGHT.astype(dtype)
    return [(hidden @ SIGNS.astype(dtype)).astype("float32")]


def test_a_strict_check_excuses_nothing():
    """The rounding of bfloat16 is judged by its whole deviation, and that is what is said."""

    def on_the_edge(inputs):
        # The next number of float32 after 1.5 gives 2.
        return [(inputs[0] - 1.5) * 2.0**23 + 1]

    loose = check_of(on_the_edge, (np.full(16, 1.5, "float32"),))
    strict = replace(loose, is_strict=True)

    def off(inputs):
        return [on_the_edge(inputs)[0] + 0.5]

    assert strict.deviation(off) == 0.5 and not strict.agrees(off)
    assert loose.agrees(off)


@pytest.mark.parametrize(
    "dtype, places, agrees",
    [("float16", 1, True), ("float16", 3, False), ("float32", 1, True), ("float32", 4096, False)],
)
def test_an_output_of_halves_may_be_one_place_off(dtype, places, agrees):
    """What lies between two halves becomes one or the other by the least rounding before."""
    check = check_of(lambda inputs: [inputs[0].astype(dtype)])
    near = check.expected[0][0]
    for _ in range(places):
        near = np.nextafter(near, np.array(np.inf, dtype))
    assert check.agrees(lambda _: [near]) is agrees


class TestNoise:
    def test_cancellation_is_nobodys_fault(self):
        check = check_of(cancelling)
        assert largest_deviation(cancelling((X,), "float64"), check.expected[0]) > TOLERANCE
        assert check.agrees(lambda inputs: cancelling(inputs, "float64"))
        assert check.is_noisy

    def test_a_wrong_output_is_still_wrong(self):
        check = check_of(cancelling)
        wrong = [1.2 * cancelling((X,), "float64")[0]]
        assert not check.agrees(lambda _: wrong)

    def test_a_well_conditioned_model_stays_strict(self):
        check = check_of(lambda inputs: [2 * inputs[0]])
        assert check.deviation(lambda inputs: [2.001 * inputs[0]]) > TOLERANCE
        assert not check.is_noisy

    def test_a_tight_tolerance_is_not_widened_by_ordinary_rounding(self):
        reference = Reference("NumPy", lambda inputs: [inputs[0] * np.float32(1.1)])
        expected = reference.run((X,))
        check = OutputCheck(reference, ((X,),), (expected,), 1e-10)
        assert not check.agrees(lambda _: [np.nextafter(expected[0], np.float32(9))])

    def test_the_reference_runs_again_only_on_a_disagreement(self):
        runs = []

        def run(inputs):
            runs.append(inputs)
            return [2 * inputs[0]]

        check = check_of(run)
        assert check.agrees(lambda inputs: [2 * inputs[0]]) and len(runs) == 1
        assert not check.agrees(lambda inputs: [3 * inputs[0]]) and len(runs) == 4
        assert not check.agrees(lambda inputs: [3 * inputs[0]]) and len(runs) == 4

    def test_tiny_outputs_are_judged_at_their_own_scale(self):
        check = check_of(lambda inputs: [np.float32(5e-5) * inputs[0]])
        assert check.agrees(lambda inputs: [np.float32(5.0001e-5) * inputs[0]])
        assert not check.agrees(lambda inputs: [np.float32(5.1e-5) * inputs[0]])

    @pytest.mark.parametrize("rounding", [0.0, 0.25])
    def test_inputs_move_by_one_place_or_half_a_step_and_zeros_stay(self, rounding):
        """By half a step in a quantized model."""
        inputs, seen = (np.array([0.0, 1.5, -4.0], "float32"), np.array([3, 4])), []
        moved_runs(Reference("", lambda arrays: seen.append(arrays), rounding=rounding), inputs, 4)
        ulp = np.float32(9)
        for floats, integers in seen:
            assert floats.dtype == np.float32 and integers.tolist() == [3, 4] and floats[0] == 0
            for moved, x in zip(floats[1:], inputs[0][1:], strict=True):
                neighbors = [np.nextafter(x, ulp), np.nextafter(x, -ulp)]
                assert moved in (
                    [(1 - rounding) * x, (1 + rounding) * x] if rounding else neighbors
                )
        assert len({floats.tobytes() for floats, _ in seen}) > 1

    @pytest.mark.parametrize("dtype", ["int64", "float32"])
    def test_whole_numbers_alone_are_not_moved(self, dtype):
        """As floats they may be ids, which a model rounds down."""
        ids = np.array([1, 7]).astype(dtype)
        assert moved_runs(Reference("", lambda _: pytest.fail("ran")), (ids,)) == []

    def test_another_run_of_the_function_excuses(self):
        check = check_of(lambda inputs: [inputs[0] * 1.0], (np.arange(16),))
        wrong = [np.arange(16) * 1.001]
        assert not check.agrees(lambda _: wrong)
        check.excuse(0, [[np.arange(16) * 1.0005]])
        assert check.agrees(lambda _: wrong) and check.is_noisy


class TestUnchecked:
    def test_outputs_that_vanish_are_named(self):
        check = check_of(lambda inputs: [inputs[0], np.float32(1e-41) * inputs[0], 0 * inputs[0]])
        assert check.unchecked == [1, 2]

    def test_outputs_below_the_rounding_at_their_bound_are_named(self):
        for size, faint in ((1e-7, [0]), (1e-5, [])):
            check = check_of(
                lambda inputs, size=size: [size * inputs[0]], bounds=(Bound(np.array(1.0)),)
            )
            assert check.unchecked == faint

    def test_denormals_may_be_taken_for_zero(self):
        check = check_of(lambda inputs: [np.float32(1e-41) * inputs[0]])
        assert check.agrees(lambda inputs: [0 * inputs[0]])


@I.ir_module
class Heads:
    @R.function
    def main(x: R.Tensor((2, 4), "float32")):
        with R.dataflow():
            scores = R.sigmoid(x)
            shaped = R.reshape(scores, (8,))
            boxes = R.exp(x)
            both = R.concat((boxes, scores), axis=1)
            scaled = R.subtract(R.multiply(R.tanh(x), R.const(3.0, "float32")), scores)
            halves = R.split(scores, 2, axis=1)
            half = halves[1]
            clipped = R.clip(x, 0, 6)
            product = R.multiply(scores, boxes)
            result = (shaped, (both, scaled), half, clipped, product)
            R.output(result)
        return result


def test_bounds_come_from_functions_of_a_bounded_range():
    shaped, both, scaled, half, clipped, product = output_bounds(Heads)
    assert (clipped, product) == (None, None)
    assert [float(bound.magnitude) for bound in (shaped, scaled, half)] == [1.0, 4.0, 1.0]
    # Boxes, which have no bound, and scores.
    np.testing.assert_array_equal(both.magnitude, [[0.0] * 4 + [1.0] * 4])


def test_bounds_of_long_chains_take_no_time_and_no_stack():
    """A value that is used twice at each step, 2,000 times."""

    def body(emit, x):
        value = emit(relax.op.sigmoid(x))
        for _ in range(2000):
            value = emit(relax.op.multiply(value, value))
        return relax.op.add(value, value)

    (bound,) = output_bounds(graph(body, (2, 8)))
    assert float(bound.magnitude) == 2.0


def graph(body, shape):
    builder = relax.BlockBuilder()
    data = relax.Var("data", relax.TensorType(shape, "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            out = builder.emit_output(body(builder.emit, data))
        builder.emit_func_output(out)
    return builder.get()


def masked_logits(fill):
    mask = np.triu(np.full((16, 16), fill, "float32"), 1)

    def body(emit, x):
        return relax.op.add(emit(relax.op.tanh(x)), relax.const(mask[None]))

    return graph(body, (1, 16, 16)), lambda inputs: [np.tanh(inputs[0]) + mask[None]]


@pytest.mark.parametrize("fill", [-1e9, -np.inf])
def test_a_mask_hides_no_logits(fill):
    mod, run = masked_logits(fill)
    data = np.random.default_rng(0).standard_normal((1, 16, 16)).astype("float32")
    check = check_of(run, (data,), output_bounds(mod))
    right = run((data,))[0]
    assert check.agrees(lambda _: [right * np.float32(1 + 1e-6)])
    assert not check.agrees(lambda _: [np.where(right > -1e8, np.float32(0), right)])


def test_small_confidences_beside_large_boxes_are_checked():
    def body(emit, x):
        boxes = emit(relax.op.multiply(emit(relax.op.sigmoid(x)), relax.const(np.float32(640))))
        return relax.op.concat([boxes, emit(relax.op.sigmoid(x))], 2)

    data = np.random.default_rng(0).standard_normal((1, 40, 12)).astype("float32") - 11

    def run(inputs):
        score = 1 / (1 + np.exp(-inputs[0]))
        return [np.concatenate([640 * score, score], 2)]

    check = check_of(run, (data,), output_bounds(graph(body, (1, 40, 12))))
    right = run((data,))[0]
    assert not check.agrees(lambda _: [np.concatenate([right[..., :12], right[..., 12:] / 2], 2)])


def test_a_flat_softmax_is_checked():
    data = 0.1 * np.random.default_rng(0).standard_normal((1, 20000)).astype("float32")
    mod = graph(lambda emit, x: relax.op.nn.softmax(x, 1), (1, 20000))

    def run(inputs):
        power = np.exp(inputs[0].astype("f8"))
        return [(power / power.sum()).astype("f4")]

    check = check_of(run, (data,), output_bounds(mod))
    right = run((data,))[0]
    assert check.agrees(lambda _: [right * np.float32(1 + 1e-6)])
    assert not check.agrees(lambda _: [right * np.float32(1.05)])


def test_a_bound_allows_the_roundings_there():
    """ONNX Runtime's sigmoid has an absolute error."""

    def sigmoid(inputs):
        return [(1 / (1 + np.exp(-inputs[0].astype("f8")))).astype("f4")]

    far = (X - 14,)
    unit = np.finfo(np.float32).eps
    almost = [sigmoid(far)[0] + 0.9 * ROUNDINGS * unit]
    assert check_of(sigmoid, far, (Bound(np.array(1.0)),)).agrees(lambda _: almost)
    assert not check_of(sigmoid, far).agrees(lambda _: almost)
    assert not check_of(sigmoid, far, (Bound(np.array(1.0)),)).agrees(
        lambda _: [almost[0] + 10 * unit]
    )


def made_steps(nodes, **outputs):
    """The steps of the outputs of a model of `x`, whose types are given by name."""
    constants = {"s": np.float32(0.25), "z": np.uint8(7), "l": np.float32(0), "h": np.float32(255)}
    made = model(
        nodes, [("x", FLOAT, [2, 8])], *((*each, None) for each in outputs.items()), **constants
    )
    return output_steps(import_onnx(made).mod)


def test_bytes_have_a_step_of_one_and_what_they_stand_for_their_scale():
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "d"),
        node("Transpose", "d", "t"),
        node("Exp", "d", "e"),
    ]
    assert made_steps(nodes, q=UINT8, d=FLOAT, t=FLOAT, e=FLOAT) == (1.0, 0.25, 0.25, None)


def test_bytes_that_are_not_rounded_are_not_quantized():
    nodes = [node("Clip", "x l h", "c"), node("Cast", "c", to=UINT8)]
    assert made_steps(nodes, y=UINT8) == (None,)


@pytest.mark.parametrize("steps, agrees", [(0, True), (1, True), (2, False)])
def test_one_step_is_allowed_and_counted(steps, agrees):
    expected = np.arange(16, dtype=np.float32).reshape(2, 8) * np.float32(0.25)
    reference = Reference("NumPy", lambda _: [expected])
    check = OutputCheck(reference, ((),), ([expected],), 1e-4, steps=(0.25,))
    found = expected.copy()
    found[1, 3] += steps * np.float32(0.25)
    assert check.agrees(lambda _: [found]) == agrees
    off = check.steps_off(lambda _: [found])
    assert off[0].tolist() == [0] * 11 + [steps] + [0] * 4
    # Without steps, nothing but rounding is allowed.
    plain = OutputCheck(reference, ((),), ([expected],), 1e-4)
    assert plain.agrees(lambda _: [found]) == (steps == 0)
    assert plain.steps_off(lambda _: [found]) == {}


def test_given_inputs_are_in_every_set():
    specs = (InputSpec("x", (2,), "float32"), InputSpec("rows", (2,), "int64"))
    inputs = [relax.Var(spec.name, relax.TensorType(spec.shape, spec.dtype)) for spec in specs]
    mod = IRModule({"main": relax.Function(inputs, inputs[0])})
    reference = Reference("the sum", lambda arrays: [arrays[0].astype("f8") + arrays[1]])
    check = make_check(ImportedModel(mod, specs, reference), None, 1e-4, 0, {"rows": [7, 9]})
    assert len(check.inputs) > 1
    for (x, rows), (expected,) in zip(check.inputs, check.expected, strict=True):
        assert rows.tolist() == [7, 9] and rows.dtype == np.int64
        np.testing.assert_allclose(expected, x.astype("f8") + np.array([7, 9]))
    assert len({x.tobytes() for x, _ in check.inputs}) == len(check.inputs)
