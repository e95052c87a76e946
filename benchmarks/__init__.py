# SPDX-License-Identifier: Apache-2.0
"""Live benchmarks on this machine, each a separate command.

``searches`` compares search methods on kernels, ``models`` compares tuned models with other
runtimes, ``graphs`` compares searched graphs with their inputs, and ``gpu`` tunes on a GPU that is
available only for minutes.
"""
