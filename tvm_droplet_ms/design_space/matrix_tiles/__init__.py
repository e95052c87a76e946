# SPDX-License-Identifier: Apache-2.0
"""A design space of the matrix tiles of Intel's CPUs (AMX), for bytes and bfloat16."""
