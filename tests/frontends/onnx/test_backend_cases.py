# SPDX-License-Identifier: Apache-2.0
"""ONNX's own tests of operators, with all inputs constant: folding gives what ONNX Runtime does."""

import warnings

import numpy as np
import pytest

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from tvm_droplet_ms.frontends.onnx.order import true_inputs  # noqa: E402
from tvm_droplet_ms.frontends.onnx.simplify import simplify_onnx  # noqa: E402

EVERY = 40
"""Of some 1,900 tests every fortieth: all take two minutes."""

FEWEST = 30
"""Comparisons that must take place; ONNX Runtime lacks some operators."""


def outputs(model, inputs):
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, inputs)


def runnable():
    """Tests whose inputs are arrays that ONNX Runtime takes, with the outputs that it gives."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Their making divides by zero.
        cases = load_model_tests(kind="node")[::EVERY]
    for case in cases:
        names = [value.name for value in true_inputs(case.model)]
        inputs = dict(zip(names, case.data_sets[0][0]))
        # ONNX Runtime raises errors of many kinds for what it lacks.
        try:
            expected = outputs(case.model, inputs)
        except Exception:
            continue
        if all(isinstance(each, np.ndarray) for each in [*inputs.values(), *expected]):
            yield case, inputs, expected


def test_folding_gives_what_onnx_runtime_gives():
    compared = 0
    for case, inputs, expected in runnable():
        has_halves = any(array.dtype == np.float16 for array in [*inputs.values(), *expected])
        rtol = 1e-2 if has_halves else 1e-4
        for bound in ({}, inputs):
            free = {name: array for name, array in inputs.items() if name not in bound}
            shapes = {name: array.shape for name, array in free.items()}
            simplified = simplify_onnx(case.model, shapes, bound).model
            for actual, wanted in zip(outputs(simplified, free), expected, strict=True):
                assert actual.dtype == wanted.dtype and actual.shape == wanted.shape, case.name
                if wanted.dtype.kind in "fiub":
                    pair = actual.astype("float64"), wanted.astype("float64")
                    np.testing.assert_allclose(*pair, rtol, rtol / 10, err_msg=case.name)
                else:
                    assert (actual == wanted).all(), case.name
        compared += 1
    assert compared >= FEWEST
