# SPDX-License-Identifier: Apache-2.0
"""One contract for all search strategies; each names the parts that it does not keep."""
