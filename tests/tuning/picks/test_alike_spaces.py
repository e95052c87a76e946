# SPDX-License-Identifier: Apache-2.0
"""Which design spaces count as alike when near-twins are passed over."""

import pytest

from tvm import te, topi
from tvm.s_tir.meta_schedule import TuneContext
from tvm.target import Target
from tvm_droplet_ms.compat import fast_tune_contexts
from tvm_droplet_ms.design_space.sound_space import FROM_TARGET, sound_space
from tvm_droplet_ms.search_strategy.design_spaces import EncodedSpaces
from tvm_droplet_ms.tuning.kernel.kernel_run import module_of
from tvm_droplet_ms.tuning.picks.pick_sampling import _form


def sketches(module, cpu):
    target = Target({"kind": "llvm", "mcpu": cpu, "num-cores": 1})
    with fast_tune_contexts():
        space = sound_space(FROM_TARGET, module, target)
        context = TuneContext(module, target=target, space_generator=space, rand_state=1)
        traces = [schedule.trace for schedule in context.generate_design_space()]
    return [_form(sketch) for sketch in EncodedSpaces(traces).sketches]


def test_spaces_that_differ_in_a_consumer_are_alike_and_tiles_of_other_lengths_are_not():
    a, w = te.placeholder((64, 192), name="a"), te.placeholder((192, 256), name="w")
    k = te.reduce_axis((0, 192), "k")
    product = te.compute((64, 256), lambda i, j: te.sum(a[i, k] * w[k, j], k), "product")
    module = module_of(te.create_prim_func([a, w, topi.nn.relu(product)]))
    of_tvm = sketches(module, "x86-64-v2")
    assert len(of_tvm) > 1 and len(set(of_tvm)) == 1
    tiled = sketches(module, "x86-64-v4")
    assert len(set(tiled)) == 1 + len(tiled) - len(of_tvm)


@pytest.mark.parametrize("cpu", ["znver5", "sapphirerapids"])
def test_spaces_of_dot_products_differ(cpu):
    a = te.placeholder((64, 256), "uint8", name="a")
    w = te.placeholder((256, 64), "int8", name="w")
    k = te.reduce_axis((0, 256), "k")
    product = te.compute(
        (64, 64), lambda i, j: te.sum(a[i, k].astype("int32") * w[k, j].astype("int32"), k), "c"
    )
    forms = sketches(module_of(te.create_prim_func([a, w, product])), cpu)
    assert len(forms) > 1 and len(set(forms)) == len(forms)
