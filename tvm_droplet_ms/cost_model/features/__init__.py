# SPDX-License-Identifier: Apache-2.0
"""Features of scheduled programs that mean the same in every workload."""
