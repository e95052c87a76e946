# SPDX-License-Identifier: Apache-2.0
"""Nodes of an ONNX graph replaced by others that are imported better."""
