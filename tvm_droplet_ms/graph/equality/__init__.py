# SPDX-License-Identifier: Apache-2.0
"""Terms that are equal: the language, the e-graph and its saturation. Imports no TVM."""
