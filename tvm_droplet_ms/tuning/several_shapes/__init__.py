# SPDX-License-Identifier: Apache-2.0
"""One library for several shapes of a model's inputs: an entry for each, and one dispatcher."""
