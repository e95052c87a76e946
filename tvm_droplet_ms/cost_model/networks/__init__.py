# SPDX-License-Identifier: Apache-2.0
"""Shared parts of the networks on programs: the model, the losses and the training."""
