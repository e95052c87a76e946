# SPDX-License-Identifier: Apache-2.0
"""LSTM, GRU and RNN: the input products of all steps at once, and the recurrence as one kernel."""
