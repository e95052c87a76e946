# SPDX-License-Identifier: Apache-2.0
"""The published search, which needs only TVM and is offered to TVM unchanged.

"Explore as a Storm, Exploit as a Raindrop" (Canesche et al., arXiv 2406.20037): evolution explores,
and a coordinate descent starts from the best schedule found. The package's own search is built on
this folder, which imports TVM, NumPy and the standard library.
"""
