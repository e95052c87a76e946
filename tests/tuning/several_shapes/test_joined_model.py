# SPDX-License-Identifier: Apache-2.0
"""The library of several shapes: functions keep apart, and weights are held once."""

from pathlib import Path

import numpy as np

import tvm
from tvm import relax
from tvm_droplet_ms.tuning.compile.kernel_objects import compile_object
from tvm_droplet_ms.tuning.compile.linked_model import LinkedModel
from tvm_droplet_ms.tuning.compile.naming import with_suffix
from tvm_droplet_ms.tuning.several_shapes.joined_model import join

WIDTH = 256
WEIGHT = np.random.default_rng(0).standard_normal((WIDTH, WIDTH)).astype("float32") / 16


def adding(rows_: int) -> tvm.IRModule:
    """A compiled-to-be module whose main adds 1 and 2 in two private functions, f and f_1."""
    builder = relax.BlockBuilder()
    kind = relax.TensorType((rows_, 8), "float32")
    private = []
    for name, value in (("f", 1.0), ("f_1", 2.0)):
        x = relax.Var("x", kind)
        with builder.function(name, [x], private=True):
            added = builder.emit(relax.op.add(x, relax.const(value, "float32")))
            private.append(builder.emit_func_output(added))
    x = relax.Var("x", kind)
    with builder.function("main", [x]):
        first = builder.emit(relax.Call(private[0], [x]))
        builder.emit_func_output(builder.emit(relax.Call(private[1], [first])))
    return relax.get_pipeline("default")(relax.transform.LegalizeOps()(builder.get()))


def joined(modules: list[tvm.IRModule], folder: Path) -> Path:
    """The library of some modules, an entry for each."""
    target = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3"})
    models = []
    for number, module in enumerate(modules):
        mod = with_suffix(module, f"_shape_{number}" if number else "")
        kernels = {
            variable.name_hint: function
            for variable, function in mod.functions_items()
            if isinstance(function, tvm.tirx.PrimFunc)
        }
        objects = {name: folder / f"{name}.o" for name in kernels}
        for name, function in kernels.items():
            of_one = tvm.IRModule({name: function.with_attr("global_symbol", name)})
            compile_object(of_one, target, str(objects[name]))
            mod.update_func(mod.get_global_var(name), relax.ExternFunc(name))
        models.append(LinkedModel(mod, objects, folder, target, kernels))
    join(models, folder, target).write(folder / "joined.so")
    return folder / "joined.so"


def test_private_functions_of_two_shapes_keep_apart(tmp_path):
    """The function f of the second model must not take the name f_1 of the first."""
    library = joined([adding(2), adding(4)], tmp_path)
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cpu())
    for entry, count in (("main", 2), ("main_1", 4)):
        found = machine[entry](tvm.runtime.tensor(np.zeros((count, 8), "float32"))).numpy()
        np.testing.assert_array_equal(found, np.full((count, 8), 3.0))


def multiplying(rows_: int) -> tvm.IRModule:
    """A compiled-to-be module whose main multiplies rows by a weight."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((rows_, WIDTH), "float32"))
    with builder.function("main", [x]):
        product = builder.emit(relax.op.matmul(x, relax.const(WEIGHT)))
        builder.emit_func_output(product)
    return relax.get_pipeline("default")(relax.transform.LegalizeOps()(builder.get()))


def test_the_library_holds_a_weight_of_two_shapes_once(tmp_path):
    """In one layout, 256 kB. Which layouts the shapes choose is tested beside their records."""
    library = joined([multiplying(2), multiplying(8)], tmp_path)
    image = library.read_bytes()
    assert image.count(WEIGHT.tobytes()) == 1
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cpu())
    random = np.random.default_rng(1)
    for entry, count in (("main", 2), ("main_1", 8)):
        rows = random.standard_normal((count, WIDTH)).astype("float32")
        found = machine[entry](tvm.runtime.tensor(rows)).numpy()
        np.testing.assert_allclose(found, rows @ WEIGHT, rtol=1e-4, atol=1e-6)
