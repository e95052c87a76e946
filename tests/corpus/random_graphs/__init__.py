# SPDX-License-Identifier: Apache-2.0
"""Random small ONNX graphs with random schedules on every kernel, beside ONNX Runtime.

``python -m tests.corpus.random_graphs --graphs 50`` makes graphs of 5 to 12 nodes, takes them the
way that ``tune`` takes a model, schedules every kernel by a random valid trace, and compares what
comes out with ONNX Runtime. ``test_random_graphs.py`` does a handful.
"""
