# SPDX-License-Identifier: Apache-2.0
"""TreeGRU: a recurrent network over the loop tree of a program."""
