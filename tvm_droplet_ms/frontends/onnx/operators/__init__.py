# SPDX-License-Identifier: Apache-2.0
"""Converters for operators that TVM's ONNX importer lacks or gets wrong."""
