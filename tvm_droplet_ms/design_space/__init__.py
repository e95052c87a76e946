# SPDX-License-Identifier: Apache-2.0
"""Design spaces that TVM lacks, and checks that reject bad schedules."""
