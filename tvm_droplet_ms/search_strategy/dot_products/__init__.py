# SPDX-License-Identifier: Apache-2.0
"""Products of bytes by the dot product instructions of x86 CPUs: intrinsics, and a schedule rule.

TVM's own rule for them fails (``docs/upstream/vnni.md``).
"""
