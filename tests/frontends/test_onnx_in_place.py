# SPDX-License-Identifier: Apache-2.0
"""Caches of ONNX decoders that the caller gives away: beside ONNX Runtime, and what is refused."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx_graphs import FLOAT, INT, model, node

import tvm
from tvm import relax
from tvm.s_tir.meta_schedule.database import MemoryDatabase
from tvm.target import Target
from tvm_droplet_ms.frontends import import_model
from tvm_droplet_ms.model.prepare import prepare_graph
from tvm_droplet_ms.session.errors import ModelError
from tvm_droplet_ms.tuning.compile.lowering import build, lower

TARGET = Target({"kind": "llvm", "num-cores": 1, "opt-level": 1})
BATCH, HEADS, PLACES, NEW, WIDTH = 2, 3, 20, 4, 8
CACHE = [BATCH, HEADS, PLACES, WIDTH]
ROWS = [BATCH, HEADS, NEW, WIDTH]
PAIR = {"past": "present"}


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def with_reader(nodes, inputs, opset=18, kind=FLOAT, cache=CACHE, **constants):
    """Nodes that make ``present``, and what reads it."""
    reader = [node("Cast", "present", "wide", to=FLOAT), node("Exp", "wide", "y")]
    given = [("past", kind, cache), ("rows", kind, ROWS), *inputs]
    outputs = [("y", FLOAT, None), ("present", kind, cache)]
    return model([*nodes, *reader], given, *outputs, opset=opset, **constants)


def by_elements(kind=FLOAT):
    """As ``torch.onnx.export`` writes ``scatter``."""
    nodes = [
        node("Reshape", "at column", "places"),
        node("Expand", "places wide_as", "index"),
        node("ScatterElements", "past index rows", "present", axis=2),
    ]
    shapes = {"column": np.array([1, 1, NEW, 1]), "wide_as": np.array(ROWS)}
    return with_reader(nodes, [("at", INT, [NEW])], kind=kind, **shapes)


def by_numbers():
    """An index of its own for each number."""
    nodes = [node("ScatterElements", "past index rows", "present", axis=2)]
    return with_reader(nodes, [("index", INT, ROWS)])


def by_rows():
    """As ``torch.onnx.export`` writes ``cache[:, :, at] = rows``: with the places first."""
    nodes = [
        node("Unsqueeze", "at last", "index"),
        node("Transpose", "past", "first", perm=[2, 0, 1, 3]),
        node("Transpose", "rows", "rows_first", perm=[2, 0, 1, 3]),
        node("ScatterND", "first index rows_first", "written"),
        node("Transpose", "written", "present", perm=[1, 2, 0, 3]),
    ]
    return with_reader(nodes, [("at", INT, [NEW])], last=np.array([-1]))


def by_places():
    """Places along three axes."""
    nodes = [
        node("Transpose", "rows", "turned", perm=[2, 1, 0, 3]),
        node("ScatterND", "past index turned", "present"),
    ]
    return with_reader(nodes, [("index", INT, [NEW, HEADS, BATCH, 3])])


def by_starts(mode="linear", kind=FLOAT):
    nodes = [node("TensorScatter", "past rows starts", "present", axis=2, mode=mode)]
    return with_reader(nodes, [("starts", INT, [BATCH])], opset=24, kind=kind)


def grouped(rows=1, batch=1):
    """A decoder's layer in ONNX Runtime's own operator: 6 heads of queries, 3 of keys."""
    queries, keys = 2 * HEADS * 16, HEADS * 16
    made = node(
        "GroupQueryAttention",
        "q k v past past_v lengths total",
        "y present present_v",
        num_heads=2 * HEADS,
        kv_num_heads=HEADS,
    )
    made.domain = "com.microsoft"
    cache = [batch, HEADS, PLACES, 16]
    inputs = [
        ("q", FLOAT, [batch, rows, queries]),
        *((name, FLOAT, [batch, rows, keys]) for name in "kv"),
        ("past", FLOAT, cache),
        ("past_v", FLOAT, cache),
        ("lengths", onnx.TensorProto.INT32, [batch]),
    ]
    outputs = [("y", FLOAT, None), ("present", FLOAT, cache), ("present_v", FLOAT, cache)]
    made = model([made], inputs, *outputs, total=np.array([PLACES], "int32"))
    made.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    return made


def library(imported):
    with TARGET:
        graph = prepare_graph()(imported.mod)
    lowered = lower(graph, TARGET)
    return relax.VirtualMachine(build(lowered, MemoryDatabase(), TARGET), tvm.cpu()), graph


def expected_of(made, fed):
    session = onnxruntime.InferenceSession(
        made.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {each.name: fed[each.name] for each in session.get_inputs()})


def assert_written(made, fed, pairs=None, expected=None):
    """The outputs are ONNX Runtime's, and each cache is the memory that was given."""
    pairs = pairs or PAIR
    imported = import_model(made, in_place=pairs)
    machine, _ = library(imported)
    names = [spec.name for spec in imported.inputs]
    tensors = [tvm.runtime.tensor(fed[name]) for name in names]
    found = machine["main"](*tensors)
    outputs = [each.name for each in made.graph.output]
    expected = expected_of(made, fed) if expected is None else expected
    of_reference = imported.reference.run([fed[name] for name in names])
    for one, other, third in zip(found, expected, of_reference, strict=True):
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(third, other, rtol=1e-4, atol=1e-5)
    for name, output in pairs.items():
        given, new = tensors[names.index(name)], found[outputs.index(output)]
        np.testing.assert_array_equal(given.numpy(), new.numpy())
        assert not np.array_equal(given.numpy(), fed[name])


AT = np.array([5, 0, -2, 19])
NUMBERS = np.broadcast_to(3 * np.arange(NEW)[:, None], ROWS)
GRID = np.stack(
    np.broadcast_arrays(
        np.arange(BATCH)[None, None], np.arange(HEADS)[None, :, None], AT[:, None, None]
    ),
    -1,
)


@pytest.mark.parametrize(
    ("made", "fed"),
    [
        pytest.param(by_elements(), {"at": AT}, id="ScatterElements"),
        pytest.param(
            by_numbers(),
            {"index": np.random.default_rng(1).permuted(NUMBERS, axis=2)},
            id="ScatterElements, an index for each number",
        ),
        pytest.param(by_rows(), {"at": AT}, id="ScatterND behind transposes"),
        pytest.param(by_places(), {"index": np.ascontiguousarray(GRID)}, id="ScatterND"),
        pytest.param(by_starts(), {"starts": np.array([7, 16])}, id="TensorScatter"),
        pytest.param(by_starts("circular"), {"starts": np.array([7, 18])}, id="circular"),
    ],
)
def test_rows_are_written_into_the_cache(made, fed):
    fed = {name: np.ascontiguousarray(each.astype("int64")) for name, each in fed.items()}
    assert_written(made, {"past": normal(*CACHE), "rows": normal(*ROWS, seed=1), **fed})


@pytest.mark.parametrize("made", [by_elements(onnx.TensorProto.FLOAT16)])
def test_a_cache_of_half_floats_is_written_as_such(made):
    fed = {"past": normal(*CACHE), "rows": normal(*ROWS, seed=1)}
    fed = {name: each.astype("float16") for name, each in fed.items()} | {"at": AT}
    imported = import_model(made, in_place=PAIR)
    _, graph = library(imported)
    assert "call_tir_inplace" in graph.script()
    machine, _ = library(imported)
    tensors = [tvm.runtime.tensor(fed[spec.name]) for spec in imported.inputs]
    y, present = machine["main"](*tensors)
    expected = expected_of(made, fed)
    np.testing.assert_array_equal(present.numpy(), expected[1])
    np.testing.assert_array_equal(tensors[0].numpy(), expected[1])
    np.testing.assert_allclose(y.numpy(), expected[0], rtol=1e-5)


@pytest.mark.parametrize(("rows", "batch", "lengths"), [(1, 1, [7]), (3, 1, [9]), (1, 2, [4, 11])])
def test_grouped_attention_writes_into_a_shared_past(rows, batch, lengths):
    """What lies behind the new rows stays, as where ONNX Runtime gets one buffer for both."""
    made = grouped(rows, batch)
    keys = HEADS * 16
    fed = {
        "q": normal(batch, rows, 2 * keys),
        **{name: normal(batch, rows, keys, seed=n + 1) for n, name in enumerate("kv")},
        **{n: normal(batch, HEADS, PLACES, 16, seed=5) for n in ("past", "past_v")},
        "lengths": np.array(lengths, "int32"),
    }
    expected = expected_of(made, fed)
    for new, old in zip(expected[1:], ("past", "past_v"), strict=True):
        for n, last in enumerate(lengths):
            new[n, :, last + 1 :] = fed[old][n, :, last + 1 :]
    assert_written(made, fed, {"past": "present", "past_v": "present_v"}, expected)
    apart = import_model(made)
    found = apart.reference.run([fed[spec.name] for spec in apart.inputs])
    assert not found[1][0, :, lengths[0] + 1 :].any()


def read_before():
    nodes = [
        *by_elements().graph.node[:3],
        node("Neg", "past", "y"),
    ]
    shapes = {"column": np.array([1, 1, NEW, 1]), "wide_as": np.array(ROWS)}
    given = [("past", FLOAT, CACHE), ("rows", FLOAT, ROWS), ("at", INT, [NEW])]
    return model(nodes, given, ("y", FLOAT, None), ("present", FLOAT, CACHE), opset=18, **shapes)


def grown():
    nodes = [node("Concat", "past rows", "present", axis=2)]
    return with_reader(nodes, [], cache=[*CACHE[:2], None, *CACHE[3:]])


def negated():
    return with_reader([node("Neg", "past", "present"), node("Abs", "rows", "other")], [])


def rows_of_the_cache():
    """The rows are the cache itself, in another order."""
    nodes = [node("ScatterElements", "past index past", "present", axis=2)]
    given = [("past", FLOAT, CACHE), ("index", INT, CACHE)]
    nodes.append(node("Exp", "present", "y"))
    return model(nodes, given, ("y", FLOAT, None), ("present", FLOAT, CACHE), opset=18)


def returned_twice(kind, **attributes):
    """Another output has the same elements, which the caller may keep."""
    nodes = [*by_elements().graph.node[:3], node(kind, "present ones", "y", **attributes)]
    if kind in ("Transpose", "Concat"):
        nodes[-1].input.pop()
    shapes = {"column": np.array([1, 1, NEW, 1]), "wide_as": np.array(ROWS)}
    given = [("past", FLOAT, CACHE), ("rows", FLOAT, ROWS), ("at", INT, [NEW])]
    outputs = [("y", FLOAT, None), ("present", FLOAT, CACHE)]
    return model(nodes, given, *outputs, opset=18, ones=np.ones(4, "int64"), **shapes)


@pytest.mark.parametrize(
    ("made", "in_place", "words"),
    [
        (rows_of_the_cache(), PAIR, "cannot be written into the input 'past'"),
        (returned_twice("Tile"), PAIR, "another output shares it"),
        (returned_twice("Transpose", perm=[0, 1, 2, 3]), PAIR, "another output shares it"),
        (returned_twice("Expand"), PAIR, "another output shares it"),
        (by_elements(), {"pasts": "present"}, "names the input 'pasts': the model has past"),
        (by_elements(), {"past": "presents"}, "names the output 'presents': the model has y"),
        (by_elements(), {"past": "y.*"}, "expected one [*] in both"),
        (by_elements(), {"*": "present"}, "expected one [*] in both"),
        (by_elements(), {"pa*t": "pre*ent", "past": "present"}, "twice"),
        (by_elements(), {"rows": "present"}, "'rows' is float32 [(]2, 3, 4, 8[)] and"),
        (by_elements(), ["past"], "expected names of outputs"),
        (read_before(), PAIR, "'present' cannot be written into the input 'past': the model reads"),
        (negated(), PAIR, "the output is not this input with rows written"),
    ],
)
def test_what_cannot_be_written_in_place_is_refused(made, in_place, words):
    with pytest.raises(ModelError, match=words):
        import_model(made, in_place=in_place)


def test_an_output_of_another_length_is_refused():
    with pytest.raises(ModelError, match="expected the same shape and type, as of a cache"):
        import_model(grown(), shapes={"past": CACHE}, in_place=PAIR)
