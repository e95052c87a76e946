# SPDX-License-Identifier: Apache-2.0
"""Byte and bfloat16 dot products with x86 instructions; see ``docs/upstream/vnni.md``."""
