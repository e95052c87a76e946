# SPDX-License-Identifier: Apache-2.0
"""A design space of register tiles for float products."""
