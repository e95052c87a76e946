# SPDX-License-Identifier: Apache-2.0
"""Features of scheduled programs that have the same meaning in every workload."""
