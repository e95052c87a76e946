# SPDX-License-Identifier: Apache-2.0
"""Features, categories, linear models and support vectors give what ONNX Runtime gives."""

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from classical_models import assert_same_each, assert_same_of, ml, tensor

GENERATOR = np.random.default_rng(0)
ROWS = GENERATOR.standard_normal((6, 4)).astype("float32") * 3
ROWS[1, 2], ROWS[2] = 0, 0
MISSING = ROWS.copy()
MISSING[::2, 1] = np.nan

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def numbers(count, factor=1.0):
    return (GENERATOR.standard_normal(count) * factor).tolist()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_features(dtype):
    nodes = [
        ml("Scaler", outputs="a", offset=numbers(4), scale=numbers(4)),
        ml("Scaler", outputs="b", offset=[0.1], scale=[3.0]),
        *(ml("Normalizer", outputs=f"n{norm}", norm=norm) for norm in ("MAX", "L1", "L2")),
        ml("ArrayFeatureExtractor", "x i", "d"),
        ml("FeatureVectorizer", "x x", "e", inputdimensions=[2, 6]),
    ]
    if dtype != "int32":
        nodes.append(ml("OneHotEncoder", outputs="f", cats_int64s=[0, -1, 2, 5]))
    fed = {"x": ROWS.astype(dtype), "i": np.array([[3, 1], [3, 0]])}
    assert_same_each(nodes, fed)


def test_features_of_one_axis():
    nodes = [
        ml("Scaler", outputs="a", offset=numbers(4), scale=numbers(4)),
        ml("Normalizer", outputs="b", norm="L1"),
        ml("ArrayFeatureExtractor", "x i", "c"),
        ml("OneHotEncoder", outputs="d", cats_int64s=[0, 1]),
    ]
    assert_same_each(nodes, {"x": ROWS[0], "i": np.array([[3], [1]])})


def test_values_that_are_missing_or_above_a_threshold():
    nodes = [
        ml("Imputer", outputs="a", imputed_value_floats=numbers(4), replaced_value_float=np.nan),
        ml("Imputer", outputs="b", imputed_value_floats=[9.0], replaced_value_float=np.nan),
        ml("Imputer", outputs="c", imputed_value_floats=numbers(4), replaced_value_float=0.0),
        ml("Imputer", "i", "d", imputed_value_int64s=[7], replaced_value_int64=0),
        ml("Binarizer", "z", "e", threshold=0.3),
        ml("Binarizer", "z", "f"),
    ]
    assert_same_each(nodes, {"x": MISSING, "z": ROWS, "i": ROWS.astype("int64")})


def test_categories_that_are_numbers():
    integers, floats = np.array([[1, 5, 7], [2, 1, 100]]), np.float32([1, 5, np.nan, 8, -0.0])
    nodes = [
        ml("LabelEncoder", "i", "a", keys_int64s=[1, 5, 1], values_int64s=[3, 4, 8]),
        ml("LabelEncoder", "i", "b", keys_int64s=[7, 5], values_floats=[3.5, 4], default_float=9.0),
        ml("LabelEncoder", "f", "c", keys_floats=[0.0, 5, 1], values_int64s=[2**60 + 1, 4, -3]),
        ml("LabelEncoder", "f", "d", keys_floats=[1.0, 5], values_floats=[3.0, 4]),
    ]
    fed = {"i": integers, "f": floats}
    assert_same_each(nodes, fed, version=2)
    by_tensors = {
        "keys_tensor": tensor(np.array([1.0, np.nan])),
        "values_tensor": tensor(np.array([2.5, 4.5])),
        "default_tensor": tensor(np.array([9.0])),
    }
    made = ml("LabelEncoder", "f", **by_tensors)
    assert_same_of([made], {"f": floats.astype("float64")}, version=4)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("classes", [1, 2, 3])
def test_linear_classifiers(classes, transform):
    if classes == 1 and transform == "PROBIT":
        pytest.skip("ONNX Runtime writes one of two scores")
    is_share = transform == "PROBIT"
    made = ml(
        "LinearClassifier",
        outputs="l y",
        coefficients=numbers(4 * classes, 0.01 if is_share else 1.0),
        intercepts=[0.2, 0.7, 0.3][:classes] if is_share else numbers(classes),
        classlabels_ints=[4, 7, 9][: max(classes, 2)],
        post_transform=transform,
    )
    assert_same_of([made], {"x": ROWS}, "l y", tolerance=1e-4)


@pytest.mark.parametrize("dtype", ["float64", "int64", "int32"])
def test_linear_classifiers_of_other_types(dtype):
    values = {"coefficients": numbers(12), "intercepts": numbers(3), "classlabels_ints": [4, 7, 9]}
    made = ml("LinearClassifier", outputs="l y", **values)
    assert_same_of([made], {"x": ROWS.astype(dtype)}, "l y")


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_linear_regressors(transform):
    factor = 0.01 if transform == "PROBIT" else 1.0
    values = {"post_transform": transform}
    nodes = [
        ml(
            "LinearRegressor",
            outputs="a",
            coefficients=numbers(4, factor),
            intercepts=[0.4],
            **values,
        ),
        ml(
            "LinearRegressor",
            outputs="b",
            coefficients=[0.0] * 4 + numbers(8, factor),
            intercepts=[0.0 if transform == "SOFTMAX_ZERO" else 0.4, 0.3, 0.7],
            targets=3,
            **values,
        ),
        ml("LinearRegressor", outputs="c", coefficients=numbers(4), post_transform="NONE"),
    ]
    assert_same_each(nodes, {"x": ROWS}, tolerance=1e-4)


@pytest.mark.parametrize("kernel", ["LINEAR", "RBF", "POLY", "SIGMOID"])
def test_support_vectors(kernel):
    shared = {
        "kernel_type": kernel,
        "kernel_params": [0.05, 0.1, 3.0],
        "support_vectors": numbers(24),
    }
    regressor = {**shared, "coefficients": numbers(6), "rho": [0.2], "n_supports": 6}
    nodes = [
        ml("SVMRegressor", outputs="a", **regressor),
        ml("SVMRegressor", outputs="b", one_class=1, **regressor),
    ]
    assert_same_each(nodes, {"x": ROWS}, tolerance=1e-4)
    nodes, outputs = [], []
    for counts, is_share in (([2, 4], 0), ([2, 1, 3], 0), ([2, 4], 1), ([2, 1, 3], 1)):
        pairs = 3 if len(counts) == 3 else 1
        shares = {"prob_a": numbers(pairs), "prob_b": numbers(pairs)} if is_share else {}
        for transform in ("NONE",) if is_share else ("NONE", "LOGISTIC", "SOFTMAX"):
            outputs += [f"l{len(nodes)}", f"y{len(nodes)}"]
            made = ml(
                "SVMClassifier",
                outputs=" ".join(outputs[-2:]),
                coefficients=numbers(6 * (len(counts) - 1)),
                rho=numbers(pairs),
                vectors_per_class=counts,
                classlabels_ints=[3, 5, 8][: len(counts)],
                post_transform=transform,
                **shared,
                **shares,
            )
            nodes.append(made)
    assert_same_of(nodes, {"x": ROWS}, " ".join(outputs), tolerance=1e-4)


def test_probabilities_of_many_classes():
    classes = 40
    pairs = classes * (classes - 1) // 2
    made = ml(
        "SVMClassifier",
        outputs="l y",
        kernel_type="LINEAR",
        kernel_params=[0.0, 0.0, 0.0],
        support_vectors=numbers(4 * classes),
        coefficients=numbers(classes * (classes - 1), 0.3),
        rho=numbers(pairs, 0.3),
        prob_a=[-1.0] * pairs,
        prob_b=numbers(pairs, 0.1),
        vectors_per_class=[1] * classes,
        classlabels_ints=list(range(classes)),
    )
    assert_same_of([made], {"x": ROWS}, "l y", tolerance=1e-4)
