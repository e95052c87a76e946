# SPDX-License-Identifier: Apache-2.0
"""Operators and layers that TVM's importer of PyTorch programs lacks or takes for others."""

import pytest
from compiling import check, operators, torch
from torch import nn
from torch.nn import functional as F

from tvm import relax
from tvm_droplet_ms.frontends import import_model
from tvm_droplet_ms.frontends.torch.importer import CONVERTERS
from tvm_droplet_ms.session.errors import ModelError


class TestTypes:
    def test_a_cumulative_sum_of_booleans_counts(self):
        check(lambda x: (x > 0).cumsum(-1), torch.randn(2, 9))

    def test_a_sum_of_booleans_counts(self):
        check(lambda x: ((x > 0).sum(-1), (x > 0).float().mean()), torch.randn(2, 9))

    def test_booleans_are_compared(self):
        def compare(x, y):
            a, b = x > 0, y > 0
            return a == b, a != b, a < b, a >= b, a == True, a != 1  # noqa: E712

        check(compare, torch.randn(3, 5), torch.randn(3, 5))

    def test_integers_and_floats_are_promoted_as_pytorch_does(self):
        def mixed(n, x):
            return n * 0.5, n / 2, n + x, torch.where(n > 2, n, x), torch.cat([n, x]), n.exp()

        check(mixed, torch.arange(6), torch.randn(6))


class TestIndexing:
    def test_the_last_of_an_axis(self):
        check(lambda x: (x[:, -1], x[-2]), torch.randn(3, 4, 5))

    def test_pairs_of_indices_after_a_whole_axis(self):
        rows, columns = torch.tensor([0, 2, -1]), torch.tensor([3, 0, 1])
        check(lambda x: x[:, rows, columns], torch.randn(2, 3, 4))

    def test_grids_of_indices(self):
        rows, columns = torch.tensor([[0], [2]]), torch.tensor([[3, 0, 1]])
        check(lambda x: x[:, rows, columns], torch.randn(2, 3, 4))

    def test_indices_around_a_whole_axis(self):
        check(
            lambda x, i, j: x[i, :, j],
            torch.randn(2, 3, 4),
            torch.tensor([1, 0]),
            torch.tensor([3, 3]),
        )

    def test_windows(self):
        check(lambda x: (x.unfold(-1, 4, 2), x.unfold(1, 3, 3)), torch.randn(2, 9, 12))

    def test_values_are_put_where_indices_say(self):
        """TVM writes the kernel without blocks, on which its packing of weights ended."""
        rows = torch.tensor([[0, 2, 1], [3, 0, 2]])
        check(lambda x, y: x.scatter(0, rows, y) * 2, torch.randn(4, 3), torch.randn(2, 3))

    def test_maxima_are_put_back(self):
        def unpooled(x):
            largest, places = F.max_pool2d(x.relu(), 2, return_indices=True)
            return F.max_unpool2d(largest, places, 2)

        check(unpooled, torch.randn(1, 3, 8, 6))

    @pytest.mark.parametrize("kernel, stride, padding, dilation", [(2, 2, 0, 1), (3, 2, 1, 2)])
    def test_windows_are_added_up(self, kernel, stride, padding, dilation):
        size = (8, 10)
        windows = F.unfold(torch.zeros(1, 1, *size), kernel, dilation, padding, stride).shape[-1]
        x = torch.randn(2, 3 * kernel**2, windows)
        check(lambda x: F.fold(x, size, kernel, dilation, padding, stride), x)


class TestReductions:
    def test_extremes(self):
        check(
            lambda x: (x.amax((-2, -1), keepdim=True), x.amin(0), *x.max(1), *x.min(-1, True)),
            torch.randn(2, 3, 4),
        )

    @pytest.mark.parametrize("value", [-torch.inf, torch.finfo(torch.float32).min, torch.inf, 0.5])
    def test_places_of_extremes_among_equals(self, value):
        check(
            lambda x: (x.argmax(1), x.argmin(-1, True), x.argmax(), x.max(1)[1], x.min(1)[1]),
            torch.full((2, 3), value),
        )

    @pytest.mark.parametrize(
        "dtype, value", [(torch.uint8, 0), (torch.uint8, 255), (torch.int8, -128)]
    )
    def test_places_and_values_of_extremes_among_equal_integers(self, dtype, value):
        check(
            lambda x: (x.argmax(1), x.argmin(1), *x.max(1), *x.min(1)),
            torch.full((2, 3), value, dtype=dtype),
        )

    def test_places_of_extremes(self):
        check(
            lambda x: (x.argmax(dim=0, keepdim=True), x.argmin(2), x.argmin()), torch.randn(2, 3, 4)
        )

    @pytest.mark.parametrize(
        "options",
        [
            {"kernel_size": 2},
            {"kernel_size": (3, 2), "stride": (2, 3), "padding": (1, 0)},
            {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2, "ceil_mode": True},
        ],
    )
    def test_maxima_and_their_places_in_the_plane(self, options):
        def pools(x):
            one = F.max_pool2d(x[0], **options, return_indices=True)
            return F.max_pool2d(x, **options, return_indices=True), one

        check(pools, torch.randint(-3, 3, (2, 3, 9, 8)).float())
        check(lambda x: F.max_pool2d(x, **options, return_indices=True)[1], torch.randn(2, 3, 9, 8))

    def test_maxima_and_their_places_in_rows_and_volumes(self):
        check(lambda x: F.max_pool1d(x, 3, 2, 1, return_indices=True), torch.randn(2, 3, 9))
        check(lambda x: F.max_pool3d(x, 2, return_indices=True), torch.randn(1, 2, 4, 6, 5))

    def test_a_pool_of_minus_infinities_has_places_in_the_plane(self):
        x = torch.full((1, 2, 4, 4), -torch.inf)
        check(lambda x: F.max_pool2d(x, 3, 1, 1, return_indices=True), x)

    def test_a_pool_whose_places_nobody_asks_for_is_one_of_tvm(self):
        imported = check(lambda x: F.max_pool2d(x, 2), torch.randn(1, 2, 4, 4))
        assert "relax.nn.max_pool2d" in operators(imported.mod)

    def test_adaptive_maxima_of_uneven_windows(self):
        check(
            lambda x: F.adaptive_max_pool2d(x, (3, 4), return_indices=True), torch.randn(1, 2, 7, 9)
        )


class TestImages:
    def test_samples_of_a_grid_that_is_no_square(self):
        """TVM's importer gives a result of the shape (1, 2, 5, 2)."""
        grid = torch.rand(1, 3, 5, 2) * 2 - 1
        check(lambda x: F.grid_sample(x, grid, align_corners=False), torch.randn(1, 2, 6, 7))

    def test_a_transposed_convolution_of_volumes(self):
        check(torch.nn.ConvTranspose3d(4, 6, 3, 2, 1, 1, groups=2), torch.randn(1, 4, 3, 4, 5))

    def test_a_transposed_convolution_of_volumes_in_double_precision(self):
        layer = torch.nn.ConvTranspose3d(4, 6, 3, 2).double()
        check(layer, torch.randn(1, 4, 3, 4, 5, dtype=torch.float64), tolerance=1e-12)


class TestSpectra:
    def test_a_spectrogram(self):
        window = torch.hann_window(16)

        def spectrogram(wave):
            return torch.stft(wave, 16, 4, window=window, return_complex=True).abs()

        check(spectrogram, torch.randn(2, 64))

    @pytest.mark.parametrize("length", [8, 9])
    def test_back_from_a_filtered_spectrum(self, length):
        def filtered(x, gain):
            return torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(gain), n=length)

        check(filtered, torch.randn(3, length), torch.randn(length))

    @pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
    def test_two_axes(self, norm):
        check(lambda x: torch.fft.fft2(x, norm=norm).real, torch.randn(2, 5, 6))

    def test_what_is_not_known_of_complex_numbers_is_named(self):
        with pytest.raises(ModelError, match=r"computes tanh.default of complex numbers: expected"):
            check(lambda x: torch.fft.rfft(x).tanh().abs(), torch.randn(8))


class TestAttention:
    def attend(self, **options):
        return lambda *inputs: F.scaled_dot_product_attention(*inputs, **options)

    def test_a_batch_of_two_is_viewed(self):
        """PyTorch's decomposition has strides that fit one."""

        def heads(x):
            y = F.scaled_dot_product_attention(x, x, x).transpose(1, 2)
            return y.reshape(2 * 5, 8)

        check(heads, torch.randn(2, 2, 5, 4))

    def test_a_row_where_all_is_masked_is_zero(self):
        mask = torch.rand(2, 1, 5, 5) > 0.5
        mask[0, 0, 2] = False
        q, k, v = torch.randn(3, 2, 2, 5, 4)
        check(self.attend(), q, k, v, mask)
        check(self.attend(), q, k, v, torch.zeros(mask.shape).masked_fill(~mask, -torch.inf))
        check(lambda q: F.scaled_dot_product_attention(q, q, q, mask), q)

    def test_causal_and_grouped(self):
        q, (k, v) = torch.randn(1, 4, 5, 8), torch.randn(2, 1, 2, 5, 8)
        imported = check(self.attend(is_causal=True, enable_gqa=True, scale=0.3), q, k, v)
        assert "relax.equal" not in operators(imported.mod)


class TestRefusals:
    def test_random_numbers(self):
        with pytest.raises(
            ModelError, match=r"draws random numbers, rand_like.default \(return self.fun"
        ):
            check(lambda x: x + torch.rand_like(x), torch.randn(3))

    def test_an_unknown_operator_is_named_with_its_line(self):
        with pytest.raises(
            ModelError, match=r"uses the operator .*histc.default of PyTorch \(return self"
        ):
            check(lambda x: torch.histc(x, 4), torch.randn(3))

    def test_a_converter_that_makes_another_shape(self, monkeypatch):
        def wrong(node, importer):
            return importer.block_builder.emit(relax.op.expand_dims(importer.env[node.args[0]], 0))

        monkeypatch.setitem(CONVERTERS, "tanh.default", wrong)
        with pytest.raises(ModelError, match=r"imports tanh.default .* the shape \(1, 3\), where"):
            check(lambda x: x.tanh(), torch.randn(3))


def test_what_depends_on_no_input_is_a_constant():
    def masked(x):
        places = torch.arange(x.shape[-1])
        mask = (places[:, None] - places).abs().clamp_max(3) == 2
        return torch.where(mask, x, 0.0)

    imported = check(masked, torch.randn(6, 6))
    assert set(operators(imported.mod)) == {"relax.where"}


def test_weights_are_no_inputs():
    model = import_model(
        (
            torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 2)).eval(),
            torch.randn(1, 3),
        )
    )
    assert [spec.name for spec in model.inputs] == ["input"]


def kernels(imported):
    return [name for name in imported.mod.get_global_vars() if name.name_hint != "main"]


@pytest.mark.parametrize(
    "layer, both, batch_first", [(nn.LSTM, True, True), (nn.GRU, False, False)]
)
def test_two_layers(layer, both, batch_first):
    module = layer(5, 7, 2, bidirectional=both, batch_first=batch_first)
    imported = check(module, torch.randn(4, 3, 5))
    assert len(kernels(imported)) == 2


@pytest.mark.parametrize("kind, bias", [("tanh", True), ("relu", False)])
def test_rnn(kind, bias):
    check(nn.RNN(5, 7, nonlinearity=kind, bias=bias, bidirectional=True), torch.randn(4, 1, 5))


def test_states_are_inputs():
    states = torch.randn(4, 3, 7), torch.randn(4, 3, 7)
    check(nn.LSTM(5, 7, 2, bidirectional=True), torch.randn(4, 3, 5), states)
    check(nn.GRU(5, 7, bias=False), torch.randn(4, 3, 5), torch.randn(1, 3, 7))


def test_a_projection():
    states = torch.randn(1, 3, 2), torch.randn(1, 3, 7)
    check(nn.LSTM(5, 7, proj_size=2), torch.randn(4, 3, 5), states)


def test_a_long_sequence_is_one_kernel():
    imported = check(nn.LSTM(5, 7), torch.randn(100, 1, 5))
    assert len(kernels(imported)) == 1
