# SPDX-License-Identifier: Apache-2.0
"""Tasks whose kernel has another name than ``main``, as of one's own ``TuneContext``."""

import pytest
from conformance.driving import drive
from conformance.objectives import rugged, timed
from conformance.workloads import matmul

from tvm import te
from tvm.ir import IRModule
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target
from tvm_droplet_ms import DropletStrategy
from tvm_droplet_ms.compat import fast_tune_contexts

VNNI = Target({"kind": "llvm", "mcpu": "cascadelake", "num-cores": 1})


def product_of_bytes():
    """Its constant weights are packed once, and its intrinsics are this package's."""
    a = te.placeholder((32, 64), "uint8", name="a")
    b = te.placeholder((64, 64), "int8", name="b")
    k = te.reduce_axis((0, 64), "k")
    dot = te.compute(
        (32, 64),
        lambda i, j: te.sum(a[i, k].astype("int32") * b[j, k].astype("int32"), k),
        name="c",
    )
    function = te.create_prim_func([a, b, dot]).with_attr("layout_free_buffers", [1])
    return IRModule({"main": function})


@pytest.mark.parametrize("mod", [matmul(), product_of_bytes()], ids=["floats", "bytes"])
def test_the_name_of_a_kernel_changes_nothing(mod):
    """With the package's prior and draft."""
    found = []
    for name in ("main", "product"):
        with fast_tune_contexts():
            context = ms.TuneContext(
                IRModule({name: mod["main"]}),
                target=VNNI,
                space_generator="post-order-apply",
                search_strategy=DropletStrategy(),
                task_name="product",
                rand_state=1,
                num_threads=1,
            )
        driven = drive(context, timed(rugged), max_trials=24, num_trials_per_iter=8)
        found.append([trial.decisions for trial in driven.trials])
    assert len(found[0]) == 24
    assert found[0] == found[1]
