# SPDX-License-Identifier: Apache-2.0
"""Rooflines: hand-worked bounds, TVM's count of operations, and a measured machine."""

import os

import pytest

import tvm
from tvm import te, topi
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm_droplet_ms.design_space.dot_products.find_dot import dot_unit, half_unit
from tvm_droplet_ms.design_space.matrix_tiles.find_matrix import has_matrix_units
from tvm_droplet_ms.host import blas_gflops, host_target
from tvm_droplet_ms.session.roofline import (
    WORKING_SETS,
    MachineRates,
    Work,
    host_bound,
    least_vector_secs,
    measure_machine,
    task_bound,
    task_work,
)

RATES = MachineRates(100e9, (1000, 10_000), (40e9, 10e9))


def convolution():
    image = te.placeholder((1, 8, 8, 16), name="image")
    weight = te.placeholder((3, 3, 16, 32), name="weight")
    out = topi.nn.conv2d_nhwc(image, weight, 1, 1, 1)
    return tvm.IRModule({"main": te.create_prim_func([image, weight, out])})


def test_bound_is_longer_of_computing_and_moving():
    assert RATES.lower_bound(Work(200e9, 500)) == pytest.approx(2.0)
    assert RATES.lower_bound(Work(1.0, 400)) == pytest.approx(400 / 40e9)
    assert RATES.lower_bound(Work(1.0, 1e6)) == pytest.approx(1e6 / 10e9)


def test_bandwidth_is_that_of_largest_measured_set_within():
    sizes = {1: 40e9, 1000: 40e9, 9999: 40e9, 10_000: 10e9, 10**9: 10e9}
    assert {size: RATES.bandwidth(size) for size in sizes} == sizes


def test_work_of_convolution_is_counted_by_hand():
    work = task_work(convolution())
    multiply_adds = 8 * 8 * 32 * 3 * 3 * 16
    assert work.bytes == 4 * (8 * 8 * 16 + 3 * 3 * 16 * 32 + 8 * 8 * 32)
    # TVM counts the choice at the padded border too.
    assert 2 * multiply_adds <= work.flops < 2.05 * multiply_adds


def test_work_does_not_depend_on_the_name():
    mod = convolution()
    assert task_work(tvm.IRModule({"convolution": mod["main"]})) == task_work(mod)


def test_bound_where_the_system_keeps_no_list_of_cpus(monkeypatch):
    """As on macOS."""
    product = te.create_prim_func(te_workload.matmul(64, 64, 64))
    monkeypatch.delattr(os, "sched_getaffinity")
    secs = host_bound(tvm.IRModule({"main": product}), host_target())
    # Of 64^3 multiply-adds, on any machine.
    assert 1e-9 < secs < 1e-3


def test_machine_is_measured_once_and_plausible():
    rates = measure_machine(1)
    assert measure_machine(1) is rates
    # From an old laptop to any core there is.
    assert 1e9 < rates.flops_per_sec < 1e13
    assert rates.working_sets == WORKING_SETS
    assert list(rates.bytes_per_sec) == sorted(rates.bytes_per_sec, reverse=True)
    # A matrix product of NumPy's cannot beat its bound by more than the noise.
    assert blas_gflops(1, size=512, repeats=10) * 1e9 < 1.2 * rates.flops_per_sec


def symbolic():
    n = te.var("n")
    image = te.placeholder((n, 4), name="image")
    return tvm.IRModule({"main": te.create_prim_func([image, topi.nn.relu(image)])})


def test_task_of_symbolic_shape_has_no_roofline():
    assert task_bound(symbolic(), RATES) is None
    assert task_bound(convolution(), RATES) == RATES.lower_bound(task_work(convolution()))


def test_work_of_half_precision_moves_half_the_bytes():
    image = te.placeholder((64,), dtype="float16", name="image")
    mod = tvm.IRModule({"main": te.create_prim_func([image, topi.nn.relu(image)])})
    assert task_work(mod).bytes == 2 * (64 + 64)


def dense(dtype):
    a, w = (te.placeholder((16, 16), dtype, name) for name in ("a", "w"))
    k = te.reduce_axis((0, 16), "k")
    wide = "int32" if "int" in dtype else "float32"
    c = te.compute((16, 16), lambda i, j: te.sum(a[i, k].astype(wide) * w[j, k].astype(wide), k))
    return tvm.IRModule({"main": te.create_prim_func([a, w, c])})


def test_products_of_narrow_types_are_as_many_a_lane_as_the_cpu_adds_up():
    target = host_target()
    units = {"int8": dot_unit(target), "bfloat16": half_unit(target), "float32": None}
    for dtype, unit in units.items():
        work = task_work(dense(dtype))
        # Sapphire Rapids: 3.2 TFLOP/s of bfloat16 and 6.5 TOP/s of bytes for 0.16 TFLOP/s.
        tiled = {"int8": 40, "bfloat16": 20}.get(dtype)
        vectors = 1 if unit is None else unit.depth
        assert work.rate == (tiled if has_matrix_units(target, dtype) else vectors)
        assert work.flops == task_work(dense("float32")).flops
    # 2,048 operations at 10 of float32 in a second are 51.2 seconds at four times the rate.
    assert MachineRates(10.0, (1,), (1e12,)).lower_bound(Work(2048, 1, 4)) == pytest.approx(51.2)


def test_least_time_in_vectors_is_that_of_the_sums():
    products = 2 * 16**3
    assert least_vector_secs(dense("float32"), RATES) == pytest.approx(products / 100e9)
    # Without matrix tiles and dot products, bfloat16 is multiplied as float32.
    assert least_vector_secs(dense("bfloat16"), RATES) == pytest.approx(products / 100e9)
    # AVX512_VNNI adds four products to a sum at once.
    assert least_vector_secs(dense("int8"), RATES) == pytest.approx(products / 400e9)


def test_least_time_in_vectors_is_unknown_without_sums():
    """Of bytes, a vector may compute more elements than of float32."""
    image = te.placeholder((64,), dtype="int8", name="image")
    mod = tvm.IRModule({"main": te.create_prim_func([image, topi.nn.relu(image)])})
    assert least_vector_secs(mod, RATES) == least_vector_secs(symbolic(), RATES) == 0.0
