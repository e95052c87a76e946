# SPDX-License-Identifier: Apache-2.0
"""Rewrite ONNX nodes into nodes that TVM imports better."""
