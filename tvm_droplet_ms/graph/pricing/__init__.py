# SPDX-License-Identifier: Apache-2.0
"""What kernels cost: rooflines, and times on this machine."""
