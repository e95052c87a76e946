# SPDX-License-Identifier: Apache-2.0
"""A design space for the matrix tiles of Intel CPUs (AMX), for bytes and bfloat16."""
