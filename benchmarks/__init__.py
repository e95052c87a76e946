# SPDX-License-Identifier: Apache-2.0
"""Live benchmarks on this machine, each a command of its own.

``compare`` compares search methods on kernels, ``models`` whole models with what they came from,
``graphs`` searched graphs, and ``gpu`` tunes on a GPU that is at hand for minutes.
"""
