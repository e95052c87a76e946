# SPDX-License-Identifier: Apache-2.0
"""One library for several shapes of a model's inputs, with an entry per shape and a dispatcher."""
