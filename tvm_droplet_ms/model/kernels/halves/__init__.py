# SPDX-License-Identifier: Apache-2.0
"""bfloat16 kernels: convolutions padded in bfloat16, products with any row count, and pools."""
