# SPDX-License-Identifier: Apache-2.0
"""Byte and bfloat16 dot products with x86 instructions: tensor intrinsics and a schedule rule.

TVM's own rule for bytes fails (``docs/upstream/vnni.md``), and TVM has no rule for bfloat16.
"""
