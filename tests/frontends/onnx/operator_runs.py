# SPDX-License-Identifier: Apache-2.0
"""Runs a model as the package imports and compiles it, and as ONNX Runtime does."""

import numpy as np
from onnx import ValueInfoProto, helper
from onnx_models import model, value

import tvm
from tvm.s_tir import meta_schedule as ms
from tvm_droplet_ms.frontends.onnx.importing import import_onnx
from tvm_droplet_ms.model.prepare import prepare_graph
from tvm_droplet_ms.session.target import cpu_target
from tvm_droplet_ms.tuning.compile.compiled_model import CompiledModel
from tvm_droplet_ms.tuning.compile.lowering import build, lower

WITHOUT_OVERFLOW = "session.x64quantprecision", "1"
"""The option by which ONNX Runtime multiplies bytes exactly on CPUs without VNNI, too."""


def run_here(made, inputs):
    """Run a model, compiled without schedules."""
    target = tvm.target.Target({**dict(cpu_target("auto", 1).export()), "opt-level": 0})
    with target:
        imported = import_onnx(made)
        prepared = prepare_graph()(imported.mod)
    model = CompiledModel(build(lower(prepared, target), ms.database.MemoryDatabase(), target))
    return model([inputs[spec.name] for spec in imported.inputs])


def run_there(made, inputs):
    """Run a model in ONNX Runtime, on one thread: some operators round by threads."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry(*WITHOUT_OVERFLOW)
    session = onnxruntime.InferenceSession(
        made.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, inputs)


def assert_same(made, inputs, *, rtol=1e-5, atol=1e-6):
    """Both give the same outputs, shapes and types included."""
    found, expected = run_here(made, inputs), run_there(made, inputs)
    assert [each.shape for each in found] == [np.shape(each) for each in expected]
    for one, other in zip(found, expected):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def model_of(nodes, fed, outputs="y", **options):
    """Make a model whose inputs are those of some arrays; of outputs between spaces."""
    inputs = [
        value(name, array.shape, helper.np_dtype_to_tensor_dtype(array.dtype))
        for name, array in fed.items()
    ]
    results = [ValueInfoProto(name=name) for name in outputs.split(" ")]
    return model(nodes, inputs, results, **options)


def assert_same_of(nodes, fed, outputs="y", *, rtol=1e-5, atol=1e-6, **options):
    """A model of some nodes gives the same in both."""
    assert_same(model_of(nodes, fed, outputs, **options), fed, rtol=rtol, atol=atol)
