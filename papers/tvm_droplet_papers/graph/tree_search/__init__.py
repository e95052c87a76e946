# SPDX-License-Identifier: Apache-2.0
"""Monte Carlo tree search over e-graphs. Imports no TVM."""
