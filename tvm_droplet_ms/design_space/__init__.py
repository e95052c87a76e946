# SPDX-License-Identifier: Apache-2.0
"""What a kernel may be scheduled as: spaces that TVM lacks, and schedules that are left out."""
