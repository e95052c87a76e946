# SPDX-License-Identifier: Apache-2.0
"""The design spaces of kernels of bytes: TVM's do not compile, or are wrong."""

import numpy as np

from tvm import te
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.space_generator import ScheduleFn
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm.target import Target
from tvm.target.codegen import target_has_features
from tvm_droplet_ms import DropletStrategy
from tvm_droplet_ms.compat import fast_tune_contexts
from tvm_droplet_ms.design_space.sound_space import (
    FROM_TARGET,
    sound_schedules,
    sound_space,
)
from tvm_droplet_ms.host import host_target
from tvm_droplet_ms.measure import fast_measure
from tvm_droplet_ms.tuning.kernel import tune_kernel
from tvm_droplet_ms.tuning.kernel.check import verification
from tvm_droplet_ms.tuning.kernel.kernel_run import module_of

VNNI = Target({"kind": "llvm", "mcpu": "cascadelake", "num-cores": 1})
PLAIN = Target({"kind": "llvm", "mcpu": "x86-64", "num-cores": 1})


def bytes_product():
    """A product of bytes, whose weights are not packed."""
    a = te.placeholder((32, 64), "uint8", name="a")
    b = te.placeholder((64, 64), "int8", name="b")
    k = te.reduce_axis((0, 64), "k")

    def dot(i, j):
        return te.sum(a[i, k].astype("int32") * b[j, k].astype("int32"), k)

    return module_of(te.create_prim_func([a, b, te.compute((32, 64), dot, name="c")]))


def traces(mod, space):
    with fast_tune_contexts():
        context = TuneContext(mod, target=VNNI, space_generator=space, rand_state=1)
        return [str(schedule.trace) for schedule in context.generate_design_space()]


def test_products_of_bytes_get_intrinsics_that_compile():
    mod = bytes_product()
    # Where TVM's own rules do so rightly, ours can go.
    assert any("dot_16x4_vnni" in trace for trace in traces(mod, FROM_TARGET))
    found = traces(mod, sound_space(FROM_TARGET, mod, VNNI))
    assert found and all("tvm_droplet_ms.dot_16x4_uint8_int8" in trace for trace in found)


def test_a_search_takes_the_sound_space():
    """What TVM generates for ``ms.tune_tir`` without a space of its own."""
    mod = bytes_product()
    with fast_tune_contexts():
        context = TuneContext(mod, target=VNNI, space_generator=FROM_TARGET, rand_state=1)
        given = context.generate_design_space()
        found = sound_schedules(given, mod, VNNI, 1)
        assert all("tvm_droplet_ms.dot_16x4_uint8_int8" in str(one.trace) for one in found)
        assert sound_schedules(found, mod, VNNI, 1) is found


def test_other_kernels_spaces_and_cpus_are_left_alone():
    floats = module_of(te.create_prim_func(te_workload.matmul(8, 8, 8)))
    own = ScheduleFn(lambda _: None)
    arm = Target({"kind": "llvm", "mtriple": "aarch64-linux-gnu"})
    assert sound_space(FROM_TARGET, floats, PLAIN) == FROM_TARGET
    assert sound_space(own, bytes_product(), VNNI) is own
    assert sound_space(FROM_TARGET, bytes_product(), arm) == FROM_TARGET


def test_a_product_of_bytes_is_tuned_here(tmp_path, monkeypatch):
    """On a CPU with VNNI each trial failed."""
    monkeypatch.setattr(verification, "ROUNDS", 1)
    result = tune_kernel(
        bytes_product(),
        trials=2,
        work_dir=tmp_path,
        strategy=DropletStrategy(prior=None, draft=None),
        progress=None,
    )
    assert result.verified and not result.failures
    generator = np.random.default_rng(0)
    a = generator.integers(0, 256, (32, 64)).astype("uint8")
    b = generator.integers(-128, 128, (64, 64)).astype("int8")
    found = result(a, b, np.zeros((32, 64), "int32"))[2]
    np.testing.assert_array_equal(found, a.astype("int32") @ b.T.astype("int32"))


def test_tune_tir_measures_intrinsics_that_compile(tmp_path):
    """The strategy alone, with TVM's own space and postprocessors."""
    mod, target = (
        bytes_product(),
        Target({**host_target().export(), "num-cores": 1}),
    )
    measure = fast_measure(target, process_wide=False)
    try:
        with fast_tune_contexts():
            database = ms.tune_tir(
                mod,
                target,
                str(tmp_path),
                max_trials_global=2,
                strategy=DropletStrategy(prior=None, draft=None),
                cost_model="none",
                **measure,
            )
    finally:
        for part in measure.values():
            part.close()
    records = database.get_all_tuning_records()
    assert records and all(float(record.run_secs[0]) < 1 for record in records)
    # TVM's own rule is for CPUs with VNNI.
    has_rule = target_has_features(["avx512vnni"], target)
    names = "dot_", "matrix_tiles"
    traces = [str(record.trace) for record in records]
    assert not has_rule or all(any(name in trace for name in names) for trace in traces)
