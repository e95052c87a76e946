# SPDX-License-Identifier: Apache-2.0
"""Preparation of ONNX models for TVM's importer."""
