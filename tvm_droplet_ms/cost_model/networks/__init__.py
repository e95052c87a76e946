# SPDX-License-Identifier: Apache-2.0
"""The parts that networks on programs share: the model, its losses and its training."""
