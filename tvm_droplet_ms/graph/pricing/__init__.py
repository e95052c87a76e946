# SPDX-License-Identifier: Apache-2.0
"""Times of kernels on this machine, as prices."""
