# SPDX-License-Identifier: Apache-2.0
"""An ONNX model, made ready for TVM's importer."""
