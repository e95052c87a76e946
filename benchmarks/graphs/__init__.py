# SPDX-License-Identifier: Apache-2.0
"""The graph search beside the import and the prepared graph."""
