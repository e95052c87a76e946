# SPDX-License-Identifier: Apache-2.0
"""The work of ``droplet-ms space``: data of spaces, and samples."""
