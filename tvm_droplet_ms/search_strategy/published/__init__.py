# SPDX-License-Identifier: Apache-2.0
"""The published search, on TVM alone: it is offered to TVM as it stands here.

"Explore as a Storm, Exploit as a Raindrop" (Canesche et al., arXiv 2406.20037): evolution explores,
and a coordinate descent goes on from the best schedule that it found. The package's own search is
built on the parts in this folder, which imports TVM, NumPy and the standard library.
"""
