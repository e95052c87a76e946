# SPDX-License-Identifier: Apache-2.0
"""Products of bytes and of bfloat16 by the instructions of x86 CPUs: intrinsics, a schedule rule.

TVM's own rule for bytes fails (``docs/upstream/vnni.md``), and it has none for bfloat16.
"""
