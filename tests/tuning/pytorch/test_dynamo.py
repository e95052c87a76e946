# SPDX-License-Identifier: Apache-2.0
"""``torch.compile(module, backend="droplet")`` beside eager PyTorch."""

import logging
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tvm_droplet_ms.tuning import dynamo

torch = pytest.importorskip("torch")
nn = torch.nn


@pytest.fixture(autouse=True)
def one_thread_and_an_own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(dynamo.CACHE, str(tmp_path / "cache"))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch._dynamo.reset()
    yield
    torch.set_num_threads(before)
    torch._dynamo.reset()


def compiled(module, **options):
    return torch.compile(module.eval(), backend=dynamo.droplet, options=options or None)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Conv2d(8, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x):
        return x + self.norm(self.inner(x)).relu()


class Two(nn.Module):
    """Two inputs, two outputs, an integer among them."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 16)

    def forward(self, places, x):
        found = self.table(places)
        return found * x, found.argmax(-1)


MODULES = {
    "mlp": (lambda: nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8)), (4, 16)),
    "convolution": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), (1, 3, 16, 16)),
    "residual": (Residual, (1, 8, 10, 10)),
    "depthwise": (lambda: nn.Conv2d(8, 8, 3, groups=8), (1, 8, 9, 9)),
    "pooled": (
        lambda: nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(75, 5)),
        (2, 3, 10, 10),
    ),
    "normalized": (lambda: nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 24)), (3, 24)),
    "attention": (lambda: nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), (1, 12, 32)),
    "softmax": (lambda: nn.Sequential(nn.Linear(20, 20), nn.Softmax(-1)), (5, 20)),
    "transposed": (lambda: nn.ConvTranspose2d(4, 3, 3, stride=2), (1, 4, 7, 7)),
}


def names(*quick: str):
    """The modules; those that are not named are slow tests."""
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in MODULES]


@pytest.mark.parametrize("name", names("residual"))
def test_outputs_are_those_of_eager(name: str, caplog: pytest.LogCaptureFixture) -> None:
    make, shape = MODULES[name]
    torch.manual_seed(0)
    module = make().eval()
    run = compiled(module)
    with torch.no_grad(), caplog.at_level(logging.WARNING):
        for scale in (1.0, -2.0):
            x = scale * torch.randn(shape)
            torch.testing.assert_close(run(x), module(x), rtol=1e-3, atol=1e-4)
    assert "as PyTorch runs it" not in caplog.text


@pytest.mark.slow
def test_an_encoder_layer_without_pytorchs_fast_path(caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    module = nn.TransformerEncoderLayer(15, 3, 21, batch_first=True, norm_first=True).eval()
    run, x = compiled(module), torch.randn(1, 7, 15)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad(), caplog.at_level(logging.WARNING):
            torch.testing.assert_close(run(x), module(x), rtol=1e-4, atol=1e-5)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    assert "as PyTorch runs it" not in caplog.text


def test_a_second_process_reads_the_library(caplog: pytest.LogCaptureFixture, monkeypatch) -> None:
    """Several inputs and outputs; the second compilation tunes nothing."""
    torch.manual_seed(0)
    module = Two().eval()
    places, x = torch.tensor([[3, 19, 0]]), torch.randn(1, 3, 16)
    with torch.no_grad(), caplog.at_level(logging.WARNING):
        expected = module(places, x)
        first = compiled(module)(places, x)
        torch._dynamo.reset()
        monkeypatch.setattr(dynamo, "tune", None)
        second = compiled(module)(places, x)
    for found in (first, second):
        torch.testing.assert_close(found[0], expected[0])
        assert torch.equal(found[1], expected[1])
    assert "as PyTorch runs it" not in caplog.text


def test_modules_of_one_class_have_their_own_weights() -> None:
    torch.manual_seed(0)
    modules = [nn.Sequential(nn.Linear(4, 3)).eval() for _ in range(2)]
    for module in modules:
        module.compile(backend=dynamo.droplet)
    x = torch.randn(2, 4)
    with torch.no_grad():
        for module in (*modules, *modules):
            weight, bias = module[0].weight, module[0].bias
            torch.testing.assert_close(module(x), x @ weight.T + bias)
        assigned = {name: value + 1 for name, value in modules[0].state_dict().items()}
        modules[0].load_state_dict(assigned, assign=True)
        expected = x @ assigned["0.weight"].T + assigned["0.bias"]
        torch.testing.assert_close(modules[0](x), expected)


class Inner(nn.Module):
    """Arithmetic in a subgraph, whose code the code of the whole leaves out."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        with torch.enable_grad():
            y = (x * self.factor).relu()
        return y + 1


def test_graphs_that_differ_inside_have_their_own_libraries() -> None:
    x = torch.tensor([1.0, 2.0])
    with torch.no_grad():
        for factor in (2, 3):
            assert compiled(Inner(factor))(x).tolist() == [1.0 * factor + 1, 2.0 * factor + 1]


class Turned(nn.Module):
    def forward(self, x):
        return (x + 1).permute(1, 0)


def test_outputs_have_the_strides_of_eager() -> None:
    x = torch.randn(3, 8)
    with torch.no_grad():
        found = compiled(Turned())(x)
    torch.testing.assert_close(found, (x + 1).T)
    assert found.stride() == (1, 8)
    found.T.view(-1)


class Overlapping(nn.Module):
    def forward(self, x):
        return x.sum(1, keepdim=True).expand(3, 8), (x + 1).view(-1).unfold(0, 4, 1)


def test_outputs_may_share_their_numbers_memory() -> None:
    x = torch.randn(3, 8)
    module = Overlapping()
    with torch.no_grad():
        found = compiled(module)(x)
    for each, expected in zip(found, module(x), strict=True):
        torch.testing.assert_close(each, expected)
        assert each.stride() == expected.stride()


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count += 1
        return x * self.count


class Complex(nn.Module):
    def forward(self, x):
        return torch.linalg.svdvals(x)


def refused(module, x, caplog) -> str:
    """The warning about a module that runs as PyTorch runs it, with eager's outputs."""
    import copy

    own = copy.deepcopy(module).eval()
    with caplog.at_level(logging.WARNING):
        found = compiled(module)(x)
        torch.testing.assert_close(found, own(x))
    return caplog.text


def test_what_is_not_compiled_runs_as_before_with_a_word(caplog, monkeypatch) -> None:
    monkeypatch.setattr(dynamo, "tune", None)
    linear = nn.Linear(3, 2)
    assert "gradients are asked for" in refused(linear, torch.ones(1, 3), caplog)
    caplog.clear()
    with torch.no_grad():
        assert "it changes" in refused(Counting(), torch.ones(3), caplog)
        caplog.clear()
        monkeypatch.undo()
        text = refused(Complex(), torch.ones(3, 3), caplog)
        (message,) = (r.getMessage() for r in caplog.records if r.name == dynamo.__name__)
        assert message in text and message == (
            "a graph runs as PyTorch runs it: the model uses the operator _linalg_svd.default of "
            "PyTorch, which is not supported: replace it, or compile the part of the model without "
            "it"
        )


def test_open_extents_run_as_before(caplog: pytest.LogCaptureFixture, monkeypatch) -> None:
    monkeypatch.setattr(dynamo, "tune", None)
    run = torch.compile(nn.Linear(4, 2).eval(), backend=dynamo.droplet, dynamic=True)
    with torch.no_grad(), caplog.at_level(logging.WARNING):
        assert run(torch.ones(3, 4)).shape == (3, 2)
    assert "dynamic shapes" in caplog.text


def test_a_second_shape_is_told_with_what_to_do(caplog, monkeypatch) -> None:
    monkeypatch.setattr(dynamo, "tune", None)
    module, told = nn.Linear(4, 2).eval(), []
    for dynamic in (None, False):
        torch._dynamo.reset()
        run = torch.compile(module, backend=dynamo.droplet, dynamic=dynamic)
        with torch.no_grad(), caplog.at_level(logging.WARNING):
            for rows in (3, 5):
                torch.testing.assert_close(run(torch.ones(rows, 4)), module(torch.ones(rows, 4)))
        told.append("torch.compile(..., dynamic=False) compiles each shape" in caplog.text)
        caplog.clear()
    assert told == [True, False]


def test_weights_that_change_later_are_not_ignored(caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 3)).eval()
    run, x = compiled(module), torch.ones(2, 4)
    with torch.no_grad(), caplog.at_level(logging.WARNING):
        torch.testing.assert_close(run(x), module(x))
        module[0].weight.mul_(2)
        torch.testing.assert_close(run(x), module(x))
    assert "its weights have changed" in caplog.text


def test_replaced_weights_do_not_get_the_address_of_the_first() -> None:
    # Large enough that the system gives freed memory out again at once.
    weight = nn.Parameter(torch.zeros(1 << 24))
    bound = dynamo._Bound(None, {0: weight}, [])
    assert bound.holds([weight])
    for _ in range(8):
        weight.data = torch.ones(1 << 24)
        assert not bound.holds([weight])


def test_unknown_options_are_named() -> None:
    message = "options={'minuts': ...}: expected one of minutes, threads"
    with pytest.raises(Exception, match=message):
        compiled(nn.Linear(4, 2), minuts=2)(torch.ones(1, 4))


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"minutes": -1}, "'minutes': -1.: expected a number of at least 0"),
        ({"minutes": "x"}, "'minutes': 'x'.: expected a number of at least 0"),
        ({"threads": 10_000}, "options: threads=10000: expected an int from 1 to"),
        ({"precision": "foo"}, "options: precision='foo': expected one of"),
    ],
)
def test_wrong_options_are_errors(option: dict, message: str) -> None:
    with torch.no_grad(), pytest.raises(Exception, match=message):
        compiled(nn.Linear(4, 2), **option)(torch.ones(1, 4))


def test_torch_finds_the_backend_by_its_entry_point() -> None:
    (found,) = (
        point for point in entry_points(group="torch_dynamo_backends") if point.name == "droplet"
    )
    assert found.load() is dynamo.droplet
