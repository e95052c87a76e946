# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers of PyTorch."""

import pytest
from compiling import check, torch
from torch import nn


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


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
    imported = check(nn.LSTM(5, 7), torch.randn(300, 1, 5))
    assert len(kernels(imported)) == 1
