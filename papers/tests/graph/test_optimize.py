# SPDX-License-Identifier: Apache-2.0
"""The whole way: Relax in, search, Relax out, with equal outputs on the virtual machine."""

import re
from collections import Counter

import numpy as np
import pytest
import small_models
import tvm_ffi
from small_models import Weights, check_outputs, inputs_of, module, run
from stub_bench import PRICE, operators

import tvm
from benchmarks.zoo.graph_models.recurrent import lstm
from tvm import relax
from tvm.ir import GenericConst
from tvm.script import relax as R
from tvm.target import Target
from tvm_droplet_ms.model.bindings import array_of
from tvm_droplet_ms.tuning.compile.lowering import lower
from tvm_droplet_papers.graph import RooflinePrice, function_search, optimize, rules_of
from tvm_droplet_papers.graph.extraction.extract import GAP, extract


def optimized(mod, **options):
    return optimize(mod, "llvm", price=PRICE, **options)


MODELS = {
    "network": small_models.network,
    "repvgg": small_models.repvgg_block,
    "attention": small_models.attention,
    "steps": small_models.steps,
}


@pytest.mark.parametrize("search", ["auto", "saturate", "mcts"])
@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_equal_and_the_price_is_lower(name, search):
    before = MODELS[name]()
    result = optimized(before, search=search, max_nodes=400, time_budget_s=1.5)
    (report,) = result.reports
    assert report.after_secs < report.before_secs
    check_outputs(before, result.mod)


def test_branches_as_trained_become_one_convolution():
    result = optimized(small_models.repvgg_block())
    counts = operators(result.mod)
    assert counts["conv2d"] == 1
    assert counts["add"] == counts["relu"] == 1
    assert counts["batch_norm"] == counts["multiply"] == 0
    assert result.reports[0].optimal


def test_transition_pools_first():
    mod = small_models.transition(256, 128)
    result = optimized(mod, layouts=False)
    assert list(operators(result.mod).elements()) == ["avg_pool2d", "conv2d"]
    # The convolution has a quarter of its arithmetic.
    assert result.reports[0].after_secs < 0.6 * result.reports[0].before_secs
    check_outputs(mod, result.mod)


def test_strides_are_pulled_up():
    """The end of a ResNet v1 stage: what two strided 1x1 convolutions skip is not computed."""
    w = Weights()

    def body(emit, x):
        op = relax.op
        y = emit(op.nn.relu(emit(op.nn.conv2d(x, w(32, 32, 3, 3), padding=1))))
        y = emit(op.nn.relu(emit(op.add(emit(op.nn.conv2d(y, w(64, 32, 1, 1))), w(1, 64, 1, 1)))))
        return tuple(emit(op.nn.conv2d(y, w(64, 64, 1, 1), strides=2)) for _ in range(2))

    mod = module([(1, 32, 32, 32)], body)
    result = optimized(mod)
    assert result.reports[0].after_secs < 0.5 * result.reports[0].before_secs
    check_outputs(mod, result.mod)


def test_projections_are_merged_and_the_scale_is_folded():
    result = optimized(small_models.attention())
    counts = operators(result.mod)
    assert counts["matmul"] + counts["einsum"] == 3
    assert counts["multiply"] == 0


def test_steps_share_one_product():
    before, after = small_models.steps(), optimized(small_models.steps()).mod
    # Six products of inputs are one; five of states stay.
    assert operators(before)["matmul"] == 11
    assert operators(after)["matmul"] == 6


def test_layouts_are_converted_at_both_ends_only():
    w = Weights()

    def body(emit, x):
        y = emit(relax.op.nn.relu(emit(relax.op.nn.conv2d(x, w(64, 64, 3, 3), padding=1))))
        y = emit(relax.op.nn.max_pool2d(emit(relax.op.add(y, w(64, 1, 1))), 3, 2))
        return emit(relax.op.nn.conv2d(y, w(64, 64, 3, 3), padding=1))

    mod = module([(1, 64, 56, 56)], body)
    result = optimized(mod)
    counts = operators(result.mod)
    assert counts["permute_dims"] == result.reports[0].conversions == 2
    bindings = result.mod["main"].body.blocks[0].bindings
    layouts = {b.value.attrs.data_layout for b in bindings if hasattr(b.value.attrs, "data_layout")}
    assert layouts == {"NHWC"}
    check_outputs(mod, result.mod)


@pytest.mark.parametrize(("speed", "layout"), [(0.5, "NCHW"), (1.3, "NHWC")])
def test_transposes_of_a_prepared_graph_go_with_its_layout(speed, layout):
    """The transposes of ``ConvertLayout`` around convolutions go where NCHW is faster."""
    w = Weights()

    def body(emit, x):
        op = relax.op
        y = emit(op.permute_dims(x, [0, 2, 3, 1]))
        nhwc = {"data_layout": "NHWC", "kernel_layout": "HWIO", "padding": 1}
        y = emit(op.nn.relu(emit(op.nn.conv2d(y, w(3, 3, 16, 16), **nhwc))))
        y = emit(op.nn.conv2d(y, w(3, 3, 16, 16), **nhwc))
        return emit(op.permute_dims(y, [0, 3, 1, 2]))

    mod = module([(1, 16, 28, 28)], body)
    price = RooflinePrice(PRICE.rates, layout_speeds={("conv2d", "NHWC"): speed})
    result = optimize(mod, "llvm", price=price, rules=())
    counts = operators(result.mod)
    assert counts["permute_dims"] == (2 if layout == "NHWC" else 0)
    calls = [b.value for b in result.mod["main"].body.blocks[0].bindings]
    calls = [call for call in calls if isinstance(call, relax.Call)]
    layouts = [call.attrs.data_layout for call in calls if call.op.name == "relax.nn.conv2d"]
    assert layouts == [layout, layout]
    check_outputs(mod, result.mod)


def test_grouped_convolutions_stay_where_conversion_does_not_pay():
    w = Weights()

    def body(emit, x):
        for _ in range(5):
            x = emit(relax.op.nn.conv2d(x, w(32, 1, 3, 3), padding=1, groups=32))
        return x

    mod = module([(1, 32, 56, 56)], body)
    slow = RooflinePrice(PRICE.rates, layout_speeds={("depthwise", "NHWC"): 1.05})
    assert optimize(mod, "llvm", price=slow, rules=()).reports[0].conversions == 0
    fast = RooflinePrice(PRICE.rates, layout_speeds={("depthwise", "NHWC"): 50.0})
    assert optimize(mod, "llvm", price=fast, rules=()).reports[0].conversions == 2


def clean(mod):
    transform = relax.transform
    passes = [
        transform.CanonicalizeBindings(),
        transform.ConvertToDataflow(),
        transform.EliminateCommonSubexpr(),
        transform.CanonicalizeBindings(),
        transform.DeadCodeElimination(),
    ]
    return tvm.transform.Sequential(passes)(mod)


@pytest.mark.parametrize("name", MODELS)
def test_no_rules_give_the_same_module(name):
    mod = MODELS[name]()
    result = optimized(mod, rules=(), layouts=False)
    assert tvm_ffi.structural_equal(clean(result.mod), clean(mod))


LIGHT = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
)


@pytest.mark.parametrize("name", LIGHT)
def test_light_models_come_back(name):
    onnx = pytest.importorskip("onnx")
    from pathlib import Path

    from tvm.relax.frontend.onnx import from_onnx

    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    mod = from_onnx(onnx.load(folder / f"light_{name}.onnx"))
    result = optimized(mod, rules=(), layouts=False)
    assert result.reports[0].search == "saturated"
    assert tvm_ffi.structural_equal(clean(result.mod), clean(mod))


def test_unknown_operators_are_kept_whole():
    """An operator with a shape, one of two results, and one with attributes, each used twice."""
    w = Weights()

    def body(emit, x):
        op = relax.op
        top = emit(op.topk(emit(op.add(x, w(4, 6))), k=3, axis=1, ret_type="both"))
        values = emit(relax.TupleGetItem(top, 0))
        one = emit(op.cumsum(values, axis=1))
        other = emit(op.cumsum(values, axis=0))
        return emit(op.flip(one, axis=0)), emit(op.tile(other, (2, 1)))

    mod = module([(4, 6)], body)
    result = optimized(mod)
    assert operators(result.mod)["cumsum"] == 2
    check_outputs(mod, result.mod)


@pytest.mark.parametrize("dtype", ["float16", "int32"])
def test_only_exact_rules_for_other_types(dtype):
    w = Weights()

    def body(emit, x):
        y = emit(
            relax.op.multiply(emit(relax.op.matmul(x, w(4, 4, dtype=dtype))), w(4, dtype=dtype))
        )
        parts = emit(relax.op.split(y, 2, axis=1))
        return emit(relax.TupleGetItem(parts, 0)), emit(relax.TupleGetItem(parts, 1))

    mod = module([(3, 4)], body, dtype)
    result = optimized(mod)
    exact = {
        rule.name for rule in rules_of("fold", "linear", "subsample", "merge", "move") if rule.exact
    }
    assert set(result.reports[0].rules) <= exact
    assert "split is slices" in result.reports[0].rules
    arrays = inputs_of(mod)
    for one, other in zip(run(mod, arrays), run(result.mod, arrays), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_quantized_model_comes_back():
    """Scales and zero points are weights, but the values between them are of eight bits."""
    w = Weights()
    scale, zero = relax.const(np.float32(0.05)), relax.const(np.int8(3))
    weight = relax.const(w.rng.integers(-9, 9, (16, 16)).astype("int8"))

    def body(emit, x):
        q = emit(relax.op.quantize(x, scale, zero, axis=-1, out_dtype="int8"))
        both = [emit(relax.op.matmul(q, each, out_dtype="int32")) for each in (weight, weight)]
        y = emit(relax.op.add(*both))
        return emit(relax.op.dequantize(y, scale, relax.const(np.int32(0)), axis=-1))

    mod = module([(8, 16)], body)
    result = optimized(mod)
    assert operators(result.mod)["quantize"] == operators(result.mod)["dequantize"] == 1
    check_outputs(mod, result.mod, tolerance=0)


@R.function
def with_tuples(
    xs: R.Tuple(R.Tensor((2, 4), "float32"), R.Tensor((2, 4), "float32")),
) -> R.Tuple(R.Tensor((2, 4), "float32"), R.Tuple(R.Tensor((2, 4), "float32"))):
    with R.dataflow():
        first = xs[0]
        second = xs[1]
        y = R.nn.relu(R.nn.relu(first))
        z = R.permute_dims(R.permute_dims(second, (1, 0)), (1, 0))
        R.output(y, z)
    return (y, (z,))


def test_tuples_go_in_and_come_out():
    mod = tvm.IRModule({"main": with_tuples.with_attr("global_symbol", "main")})
    result = optimized(mod)
    relax.analysis.well_formed(result.mod)
    (report,) = result.reports
    assert report.note or operators(result.mod)["permute_dims"] == 0
    executables = [
        tvm.compile(relax.transform.LegalizeOps()(each), "llvm") for each in (mod, result.mod)
    ]
    arrays = [np.random.default_rng(i).standard_normal((2, 4)).astype("float32") for i in range(2)]
    given = tvm_ffi.convert([tvm.runtime.tensor(array) for array in arrays])
    for executable in executables:
        y, (z,) = relax.VirtualMachine(executable, tvm.cpu())["main"](given)
        np.testing.assert_array_equal(y.numpy(), np.maximum(arrays[0], 0))
        np.testing.assert_array_equal(z.numpy(), arrays[1])


@pytest.mark.parametrize("search", ["auto", "saturate", "mcts"])
def test_rules_that_do_not_fit_stay_within_the_limit(search):
    mod = small_models.attention()
    everything = optimized(mod).reports[0].nodes
    result = optimized(mod, search=search, max_nodes=everything // 2, time_budget_s=5)
    assert 0 < result.reports[0].nodes <= everything // 2
    check_outputs(mod, result.mod)


def test_weights_may_be_parameters():
    """With num_input their arithmetic stays in the function, to be lifted; nothing is folded."""
    mod = small_models.weights_as_parameters(8)
    result = optimized(mod)
    names = [b.value.op.name for b in result.mod["main"].body.blocks[0].bindings]
    assert names[-1] == "relax.matmul" and "relax.multiply" in names
    assert dict(result.mod["main"].attrs)["num_input"] == 1
    check_outputs(mod, result.mod)


@R.function
def symbolic(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
    with R.dataflow():
        y = R.nn.relu(x)
        R.output(y)
    return y


@R.function(pure=False)
def impure(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
    y = R.nn.relu(x)
    R.print(y, format="{}")
    z = R.nn.relu(y)
    return z


@R.function
def branching(x: R.Tensor((2, 4), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(
    (2, 4), "float32"
):
    if c:
        y = R.nn.relu(x)
    else:
        y = R.negative(x)
    return y


@pytest.mark.parametrize("func", [symbolic, impure, branching], ids=["symbolic", "impure", "if"])
def test_what_is_not_understood_is_left_alone_with_a_note(func):
    mod = tvm.IRModule({"main": func})
    result = optimized(mod)
    (report,) = result.reports
    assert report.search == "none" and report.note
    assert report.note in str(result)
    assert tvm_ffi.structural_equal(result.mod, mod)


def test_the_module_that_goes_in_stays_as_it_is():
    mod = small_models.network()
    twin = tvm.IRModule(mod.functions)
    optimized(mod)
    assert tvm_ffi.structural_equal(mod, twin)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"search": "beam"}, "search is 'beam', expected 'auto', 'saturate' or 'mcts'"),
        ({"max_nodes": 0}, "max_nodes is 0, expected at least 1"),
        ({"time_budget_s": -1}, "time_budget_s is -1, expected a positive number"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        optimized(small_models.network(), **options)


def test_other_targets_and_families_are_refused():
    with pytest.raises(ValueError, match="the target is of the kind 'cuda', expected 'llvm'"):
        optimize(small_models.network(), "cuda", price=PRICE)
    with pytest.raises(ValueError, match="'folds' is no family"):
        rules_of("folds")


def constants_of(mod):
    """The constants of ``main``, each object once."""
    found = {}

    def visit(expr):
        if isinstance(expr, GenericConst):
            found[expr] = None

    relax.analysis.post_order_visit(mod["main"], visit)
    return list(found)


def constant_bytes(constant):
    array = array_of(constant)
    return array.shape, array.tobytes()


def test_repeated_layers_get_one_form():
    """All steps of a network have the same graphs to choose from, many of them of one price."""
    mod = lstm(steps=8, width=64)
    found = optimized(mod)
    check_outputs(mod, found.mod)
    kernels = lower(found.mod, Target({"kind": "llvm", "num-cores": 1}))
    names = Counter(re.findall(r"R\.call_tir\(cls\.(\w*matmul\w*)", kernels.script()))
    # One product of all inputs, and one kernel for what the steps do with their states.
    assert sorted(names.values()) == [1, 7]
    # The steps share their weights, also those that were folded for each.
    weights = [constant_bytes(constant) for constant in constants_of(found.mod)]
    assert len(weights) == len(set(weights))


@pytest.mark.parametrize("search", ["auto", "saturate", "mcts"])
def test_the_last_extraction_is_within_the_time(search, monkeypatch):
    """A quarter of the time is kept for it; each had 20 s of its own, after the time was over."""
    limits = []

    def timed_extract(problem, time_limit=20.0, gap=GAP):
        limits.append(time_limit)
        return extract(problem, time_limit, gap)

    monkeypatch.setattr(function_search, "extract", timed_extract)
    mod = small_models.attention()
    result = optimized(mod, search=search, max_nodes=120, time_budget_s=2.0)
    last = [limit for limit in limits if limit != function_search.REWARD_SECS]
    assert 0 < len(last) <= 2
    assert sum(last) <= 2.0 + function_search.LEAST_FINAL_SECS
    check_outputs(mod, result.mod)
