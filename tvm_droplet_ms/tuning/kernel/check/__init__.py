# SPDX-License-Identifier: Apache-2.0
"""Makes a kernel's arguments, and checks and times its best schedules on them."""
