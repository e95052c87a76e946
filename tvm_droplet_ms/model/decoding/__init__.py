# SPDX-License-Identifier: Apache-2.0
"""What a decoder needs: keys that heads share, and rows written into its cache."""
