# SPDX-License-Identifier: Apache-2.0
"""Training data of cost models, training, and the quality of a ranking."""
