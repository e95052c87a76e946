# SPDX-License-Identifier: Apache-2.0
"""LSTM, GRU and RNN: the products of all steps at once, the recurrence as one kernel."""
