# SPDX-License-Identifier: Apache-2.0
"""What is known of the weights of kernels: where they are found, and how large they are."""
