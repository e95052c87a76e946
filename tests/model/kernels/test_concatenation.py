# SPDX-License-Identifier: Apache-2.0
"""Tests of concatenation along the innermost axis."""

import kernel_chain
import numpy as np
import pytest
from graphs import build

import tvm
from tvm import relax, te
from tvm.ir import IRModule
from tvm_droplet_ms.model.kernels.copies import concatenate
from tvm_droplet_ms.model.kernels.lowering_passes import legalize_map, register_schedule_rules


@pytest.fixture(autouse=True, scope="module")
def rules():
    register_schedule_rules()


def concatenation(shapes, axis=-1, then=()):
    """A Relax module that concatenates its arguments and applies further operators."""

    def body(emit, *arguments):
        y = emit(relax.op.concat(arguments, axis))
        for operator in then:
            y = emit(operator(y))
        return y

    return build(list(shapes), body)


def arrays(shapes):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype("float32") for shape in shapes]


CHANNELS = [(16, 16), (24, 8), (8, 16, 32), (40,)]


@pytest.mark.parametrize("channels", CHANNELS)
def test_a_tuned_concatenation_joins_its_parts(channels):
    inputs = arrays([(1, 3, 5, extent) for extent in channels])
    mod = concatenation([array.shape for array in inputs])
    run = kernel_chain.run_tuned(mod, inputs, rules=legalize_map())
    np.testing.assert_array_equal(run.outputs[0], np.concatenate(inputs, axis=3))
    assert run.kernels == ["concatenate"]
    assert kernel_chain.unscheduled(run.compiled) == []


def test_what_follows_is_fused_and_vectorized_with_it():
    inputs = arrays([(1, 3, 5, 16), (1, 3, 5, 8)])
    scale = np.linspace(-1, 1, 24, dtype="float32").reshape(1, 1, 1, 24)
    mod = concatenation(
        [array.shape for array in inputs],
        then=[lambda y: relax.op.multiply(y, relax.const(scale)), relax.op.nn.relu],
    )
    run = kernel_chain.run_tuned(mod, inputs, rules=legalize_map())
    expected = np.maximum(np.concatenate(inputs, axis=3) * scale, 0)
    np.testing.assert_allclose(run.outputs[0], expected, rtol=1e-6)
    assert run.kernels == ["fused_concatenate_multiply_relu"]
    assert "T.vectorized(T.int64(8))" in run.schedules[0].mod.script()


def test_a_reduction_that_follows_is_computed_right():
    inputs = arrays([(1, 3, 5, 16), (1, 3, 5, 8)])
    mod = concatenation(
        [array.shape for array in inputs], then=[lambda y: relax.op.mean(y, [1, 2], True)]
    )
    run = kernel_chain.run_tuned(mod, inputs, rules=legalize_map())
    expected = np.concatenate(inputs, axis=3).mean(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(run.outputs[0], expected, rtol=1e-5, atol=1e-6)


def test_no_vector_reaches_into_two_parts():
    parts = [te.placeholder((1, 3, 5, extent), "float32") for extent in (48, 16)]
    function = te.create_prim_func([*parts, concatenate(parts)])
    mod = IRModule({"main": function.with_attr("global_symbol", "main")})
    for seed in range(1, 5):
        schedule = kernel_chain.draw_schedule(mod, seed)
        loop = schedule.get(schedule.get_loops(schedule.get_sblock("concatenate"))[-1])
        assert loop.kind == tvm.tirx.ForKind.VECTORIZED
        assert int(loop.extent) in (8, 16)


@pytest.mark.parametrize(
    "shapes, axis",
    [([(1, 16, 3, 3), (1, 16, 3, 3)], 1), ([(1, 3, 3, 12), (1, 3, 3, 16)], 3), ([(16,), (8,)], 0)],
    ids=["another axis", "no common vector", "one axis"],
)
def test_other_concatenations_are_legalized_as_tvm_does(shapes, axis):
    mod = concatenation(shapes, axis)
    tvm.ir.assert_structural_equal(
        relax.transform.LegalizeOps(legalize_map())(mod), relax.transform.LegalizeOps()(mod)
    )


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_many_tensors_are_copied(axis):
    """Branches inside of each other for 40 tensors would take a minute to compile."""
    shapes = [tuple(2 + n % 3 if axis == place else 3 for place in range(3)) for n in range(40)]
    inputs = arrays(shapes)
    mod = concatenation(shapes, axis, then=[relax.op.negative])
    run = kernel_chain.run_tuned(mod, inputs, rules=legalize_map())
    np.testing.assert_array_equal(run.outputs[0], -np.concatenate(inputs, axis=axis))


def test_many_rows_of_one_axis_are_copied():
    inputs = arrays([(2,)] * 40)
    run = kernel_chain.run_tuned(concatenation([(2,)] * 40, 0), inputs, rules=legalize_map())
    np.testing.assert_array_equal(run.outputs[0], np.concatenate(inputs))


def test_tensors_without_elements_are_left_out():
    shapes = [(16, 256), (16, 0)]
    inputs = arrays(shapes)
    mod = concatenation(shapes, 1, then=[relax.op.exp])
    run = kernel_chain.run_tuned(mod, inputs, rules=legalize_map())
    np.testing.assert_allclose(run.outputs[0], np.exp(inputs[0]), rtol=1e-5)
    assert run.kernels == ["exp"]
