# SPDX-License-Identifier: Apache-2.0
"""Measured prices: what is asked for, what they change, and what the loop finds."""

import random
from contextlib import nullcontext
from dataclasses import replace

import pytest
import small_models
import stub_bench
from small_models import Weights, module, transition
from stub_bench import BOUND, StubBench, operators, run_with

from tvm import relax
from tvm_droplet_papers.graph import measured_search, optimizer, rules_of
from tvm_droplet_papers.graph.equality.language import Tensor
from tvm_droplet_papers.graph.extraction.extract import extract
from tvm_droplet_papers.graph.extraction.implementations import AS_TYPED
from tvm_droplet_papers.graph.extraction.problem import problem_of
from tvm_droplet_papers.graph.pricing.deciding_kernels import (
    FIRST_TRIALS,
    LEAST_GAIN,
    MORE_TRIALS,
    time_what_is_wanted,
    time_what_may_win,
)
from tvm_droplet_papers.graph.pricing.kernels import conversion_kernel, kernel_of
from tvm_droplet_papers.graph.pricing.measured_prices import HOPE, FoundPlan, MeasuredPrice
from tvm_droplet_papers.graph.relax.importer import import_function
from tvm_droplet_papers.graph.rules import ALL_RULES
from tvm_droplet_papers.graph.rules.rule import saturate


@pytest.fixture(autouse=True)
def fixed_machine(monkeypatch):
    monkeypatch.setattr(optimizer, "measure_machine", lambda threads=1: stub_bench.RATES)


def bound_of(kernel):
    """The roofline of a kernel: its bytes and arithmetic, counted by hand for the transition."""
    (first, *rest) = kernel.operands
    channels = {"conv2d": 32, "avg_pool2d": first.shape[1]}[kernel.operator.name]
    pixels = first.shape[2] * first.shape[3] // (1 if kernel.operator.name == "conv2d" else 4)
    moved = 4 * (first.size + channels * pixels + sum(each.size for each in rest))
    flops = channels * pixels * (2 * first.shape[1] if rest else 4)
    return max(flops / 1e11, moved / stub_bench.RATES.bandwidth(moved))


def order(mod):
    return list(operators(mod))


def whole_of(price):
    """The time of a whole graph: that of its first operator."""

    def whole(mod):
        return price[order(mod)[0]]

    return whole


def test_prices_that_invert_the_roofline_change_the_plan(tmp_path):
    """By rooflines the pool comes first; with a pool that is slow on many channels it does not."""
    dear = {"conv2d": 1e-6, "avg_pool2d": 1e-3}

    def price(kernel):
        wide = kernel.operands[0].shape[1] == 64
        return dear[kernel.operator.name] if wide else 1e-6

    bench = StubBench(price, whole_of(dear))
    result = run_with(bench, transition(), tmp_path, layouts=False)
    assert order(result.mod) == ["conv2d", "avg_pool2d"]
    assert bench.is_closed and not bench.ran
    assert "no graph saves 0.5%" in result.reports[0].measured.verdict

    cheap = {"conv2d": 1e-3, "avg_pool2d": 1e-6}
    by_size = StubBench(lambda k: cheap[k.operator.name] * k.operands[0].size, whole_of(cheap))
    result = run_with(by_size, transition(), tmp_path, layouts=False)
    assert order(result.mod) == ["avg_pool2d", "conv2d"]
    assert result.reports[0].measured.graphs[0].name == "the input"


def test_layouts_follow_prices(tmp_path):
    """A convolution that is a hundred times faster in NHWC is worth two conversions."""
    w = Weights()

    def body(emit, x):
        return emit(relax.op.nn.conv2d(x, w(16, 16, 3, 3), padding=1))

    mod = module([(1, 16, 28, 28)], body)
    secs = {"NCHW": 1e-2, "NHWC": 1e-4}

    def price(kernel):
        return secs.get(dict(kernel.operator.attributes).get("layout"), 1e-5)

    def whole(mod):
        return 1e-2 if operators(mod)["permute_dims"] == 0 else 1e-4

    result = run_with(StubBench(price, whole), mod, tmp_path)
    assert operators(result.mod)["permute_dims"] == 2
    assert result.reports[0].measured.graphs[0].whole_secs == 1e-2


def test_kernels_that_cannot_win_are_never_timed(tmp_path):
    """At its roofline NCHW cannot lose to NHWC and two conversions: neither is asked for."""
    bench = StubBench(bound_of)
    run_with(bench, transition(), tmp_path)
    names = {kernel.operator.name for kernel in bench.asked}
    assert names == {"conv2d", "avg_pool2d"}
    assert {k.operator.get("layout") for k in bench.asked} == {"NCHW"}
    assert len(bench.asked) == len(set(bench.asked)) == 4


class Search:
    """Extraction from the graph of a module, at prices that are learned."""

    def __init__(self, mod, bound=BOUND, layouts=True):
        self.imported = import_function(optimizer.prepared_for_import(mod)["main"])
        self.graph, self.layouts = self.imported.graph, layouts
        self.price = MeasuredPrice(bound)
        self.graph.rebuild()

    def saturated(self, limit, **options):
        self.graph.limit = limit
        saturate(self.graph, ALL_RULES, **options)
        return self

    def at(self, price):
        problem = problem_of(self.graph, self.imported.roots, price, layouts=self.layouts)
        return FoundPlan(self.graph, extract(problem, 20.0).plan)

    def extracted(self):
        return self.at(self.price)

    def wanted(self, timed, *options, is_due=lambda: False):
        return time_what_is_wanted(self.price, self.extracted, timed, is_due, *options)

    def may_win(self, timed):
        return time_what_may_win(self.price, self.extracted, timed, lambda: False)[-1]


class TruePrice:
    """Every kernel at a random multiple of its roofline."""

    def __init__(self, seed, bound=BOUND):
        self.seed = seed
        self.price = MeasuredPrice(bound)

    def secs(self, kernel):
        factor = random.Random(f"{self.seed} {kernel}").choice([1.0, 1.2, 3.0])
        return self.price.bound_of(kernel) * factor + 1e-9

    def kernel(self, graph, number, way):
        self.price.kernel(graph, number, way)
        self._learn(kernel_of(graph, number, way))
        return self.price.kernel(graph, number, way)

    def conversion(self, type_, source, target):
        self.price.conversion(type_, source, target)
        self._learn(conversion_kernel(type_, source, target))
        return self.price.conversion(type_, source, target)

    def _learn(self, kernel):
        if kernel is not None:
            self.price.learn({kernel: self.secs(kernel)})


each_small_model = pytest.mark.parametrize(
    ("name", "seed"), [(name, seed) for name in ("network", "attention") for seed in range(6)]
)


@each_small_model
def test_the_loop_finds_what_timing_everything_finds(name, seed):
    search = Search(getattr(small_models, name)()).saturated(400, max_rounds=3)
    truth = TruePrice(seed)
    best = search.at(truth).plan
    found = search.wanted(lambda kernels, trials: {k: truth.secs(k) for k in kernels})
    assert found[-1].plan.cost == pytest.approx(best.cost, rel=1e-6)
    assert 0 < len(search.price.timed) < len(truth.price.timed)


@each_small_model
def test_more_trials_find_what_timing_everything_finds(name, seed):
    """By luck, first trials take up to 1 / HOPE times as long as the best schedule."""
    # These kernels are so small that their calls would take most of the time.
    bound = replace(BOUND, call_secs=0.0)
    search = Search(getattr(small_models, name)(), bound).saturated(400, max_rounds=3)
    truth, price = TruePrice(seed, bound), search.price
    best = search.at(truth).plan
    trials_of = {}

    def timed(kernels, trials):
        trials_of.update(dict.fromkeys(kernels, trials))
        luck = {k: random.Random(f"luck {seed} {k}").uniform(1, 1 / HOPE) for k in kernels}
        return {k: truth.secs(k) * (luck[k] if trials == FIRST_TRIALS else 1) for k in kernels}

    search.wanted(timed)
    found = search.may_win(timed)
    assert truth.price.repriced(found).plan.cost < (1.001 + LEAST_GAIN) * best.cost
    assert price.firm == {k for k, trials in trials_of.items() if trials == MORE_TRIALS}
    assert len(price.firm) < len(price.timed) < len(truth.price.timed)


@pytest.mark.parametrize(("first", "is_taken"), [(14e-3, True), (30e-3, False)])
def test_an_unlucky_kernel_gets_more_trials_and_a_hopeless_one_does_not(first, is_taken):
    """As it came it takes 11 ms. With the pool first, 2 ms of that and a small convolution."""
    search, asked = Search(transition(), layouts=False).saturated(2000), []

    def secs(kernel, trials):
        pixels, channels = kernel.operands[0].shape[2], kernel.operands[0].shape[1]
        if kernel.operator.name == "avg_pool2d":
            return 1e-3 * channels / 32
        if pixels == 28:
            return 10e-3
        return first if trials == FIRST_TRIALS else 5e-3

    def timed(kernels, trials):
        asked.append((trials, [kernel.operands[0].shape for kernel in kernels]))
        return {kernel: secs(kernel, trials) for kernel in kernels}

    start = search.wanted(timed)[-1]
    assert start.plan.cost == pytest.approx(11e-3, rel=1e-2)
    asked.clear()
    found = search.may_win(timed)
    if is_taken:
        assert asked[0] == (MORE_TRIALS, [(1, 64, 14, 14)])
        assert found.plan.cost == pytest.approx(7e-3, rel=1e-2)
    else:
        assert not asked and found.plan.cost == start.plan.cost


def test_one_kernel_gets_more_trials_however_late_it_is(tmp_path, monkeypatch):
    """With the pool first it takes 7 ms in place of 11, but not with the first trials."""
    monkeypatch.setattr(measured_search, "CLOSER_SHARE", 0.0)

    class Unlucky(StubBench):
        def time(self, kernels, stop, trials):
            secs = super().time(kernels, stop, trials)
            small = [k for k in kernels if k.operands[0].shape[1:3] == (64, 14)]
            return secs | dict.fromkeys(small, 14e-3 if trials == FIRST_TRIALS else 5e-3)

    def price(kernel):
        channels = kernel.operands[0].shape[1]
        return 10e-3 if kernel.operator.name == "conv2d" else 1e-3 * channels / 32

    bench = Unlucky(price, whole_of({"conv2d": 11e-3, "avg_pool2d": 7e-3}))
    result = run_with(bench, transition(), tmp_path, layouts=False)
    assert order(result.mod) == ["avg_pool2d", "conv2d"]
    assert result.reports[0].measured.closer == 1


NHWC = (0, 2, 3, 1)


def image(channels):
    return Tensor((1, channels, 8, 8), "float32")


class OneSecond:
    """Rooflines of a second, for all."""

    call_secs = 0.0

    def conversion(self, type_, source, target):
        return 1.0


def test_what_was_not_timed_is_expected_to_take_what_its_kind_does():
    """Ratios of 2, 3, 4 and 9: a quarter of them are below 2.75, and half below 3.5."""
    price = MeasuredPrice(OneSecond())
    ratios = dict(zip(range(2, 6), [2.0, 4.0, 9.0, 3.0], strict=True))
    for channels, ratio in ratios.items():
        assert price.conversion(image(channels), AS_TYPED, NHWC) == 1.0
        price.learn({conversion_kernel(image(channels), AS_TYPED, NHWC): ratio})
        with price.expecting():
            expected = price.conversion(image(7), AS_TYPED, NHWC)
        # Two of a kind tell nothing.
        assert expected == {2: 1.0, 3: 1.0, 4: 3.0, 5: 2.75}[channels]
    assert price.conversion(image(7), AS_TYPED, NHWC) == 1.0
    assert price.conversion(image(2), AS_TYPED, NHWC) == 2.0
    price.settle()
    assert price.conversion(image(7), AS_TYPED, NHWC) == 3.5
    assert price.conversion(image(2), AS_TYPED, NHWC) == 2.0


def test_a_kind_that_is_slow_is_not_timed_to_the_end():
    """Some kernels show that NCHW takes ten times its roofline: the same plan is found.

    That no other is cheaper takes the time of all of them.
    """
    w = Weights()

    def body(emit, x):
        for channels in range(8, 32):
            x = emit(relax.op.nn.conv2d(x, w(channels + 1, channels, 3, 3), padding=1))
        return x

    mod = module([(1, 8, 28, 28)], body)

    def timed_of(is_expecting):
        search = Search(mod)
        price = search.price

        def timed(kernels, trials):
            slow = {"NCHW": 10.0}
            return {
                k: price.bound_of(k) * slow.get(dict(k.operator.attributes).get("layout"), 1.1)
                for k in kernels
            }

        with price.expecting() if is_expecting else nullcontext():
            found = search.wanted(timed)
        return len(price.timed), price.repriced(found[-1]).plan.cost

    (few, cost), (all_, least) = timed_of(True), timed_of(False)
    assert few < all_ and cost == pytest.approx(least, rel=1e-2)


def test_what_was_not_timed_is_as_far_from_its_roofline_as_the_rest():
    """With no time to price NHWC, it must not win because nobody has timed it."""
    search = Search(transition())
    price = search.price
    first, second = search.wanted(
        lambda kernels, trials: {kernel: 500 * bound_of(kernel) for kernel in kernels},
        is_due=lambda: len(price.timed) > 0,
    )
    assert not price.unknown([first]) and price.unknown([second])
    price.settle()
    assert price.share == pytest.approx(500, rel=1e-3)
    assert not price.unknown([search.extracted()])


def test_what_decides_is_timed_first():
    """A 3x3 convolution is in all plans: its time decides nothing, and is known last."""
    w = Weights()

    def body(emit, x):
        y = emit(relax.op.nn.conv2d(x, w(64, 64, 3, 3), padding=1))
        y = emit(relax.op.nn.conv2d(y, w(32, 64, 1, 1)))
        return emit(relax.op.nn.avg_pool2d(y, (2, 2), (2, 2)))

    search, asked = Search(module([(1, 64, 28, 28)], body), layouts=False), []
    before = search.extracted()
    search.saturated(2000)

    def timed(kernels, trials):
        asked.append({kernel.operands[-1].shape for kernel in kernels})
        return dict.fromkeys(kernels, 1e-3)

    search.wanted(timed, [before])
    three_by_three = (64, 64, 3, 3)
    assert len(asked) > 1 and three_by_three in asked[-1]
    assert not any(three_by_three in shapes for shapes in asked[:-1])


def test_unpriced_kernels_stay_at_their_rooflines(tmp_path):
    bench = StubBench(lambda kernel: None)
    mod = transition()
    result = run_with(bench, mod, tmp_path)
    report = result.reports[0]
    assert report.measured.unpriced == len(bench.asked) > 0
    assert report.after_secs < report.before_secs


def test_a_record_below_its_roofline_is_believed(tmp_path):
    """Rates are measured, and a kernel may beat them: its time is the price all the same."""
    whole = whole_of({"avg_pool2d": 1e-3, "conv2d": 2e-3})
    bench = StubBench(lambda kernel: bound_of(kernel) / 4, whole)
    result = run_with(bench, transition(), tmp_path, layouts=False)
    (report,) = result.reports
    as_it_came = {("conv2d", (1, 64, 28, 28)), ("avg_pool2d", (1, 32, 28, 28))}
    asked = [k for k in bench.asked if (k.operator.name, k.operands[0].shape) in as_it_came]
    records = sum(bound_of(kernel) / 4 for kernel in asked)
    assert len(asked) == 2
    assert report.before_secs == pytest.approx(records + 2 * BOUND.call_secs)
    assert order(result.mod)[0] == "avg_pool2d" and report.after_secs < report.before_secs
    assert "of its roofline" in str(result)


def test_without_rules_and_layouts_only_the_input_is_timed(tmp_path):
    bench = StubBench(lambda kernel: 1e-3)
    run_with(bench, transition(), tmp_path, rules=(), layouts=False)
    assert len(bench.asked) == 2 and not bench.ran


def test_families_of_rules_can_be_measured_alone(tmp_path):
    bench = StubBench(lambda kernel: 1e-3)
    result = run_with(bench, small_models.steps(), tmp_path, rules=rules_of("merge"))
    assert set(result.reports[0].rules) <= {rule.name for rule in rules_of("merge")}
