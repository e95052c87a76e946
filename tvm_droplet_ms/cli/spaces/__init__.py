# SPDX-License-Identifier: Apache-2.0
"""What ``droplet-ms space`` does: data of spaces, and samples."""
