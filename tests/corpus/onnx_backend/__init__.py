# SPDX-License-Identifier: Apache-2.0
"""ONNX's own backend tests, run through the import, the lowering and a compiled model."""
