# SPDX-License-Identifier: Apache-2.0
"""Published methods on top of tvm_droplet_ms that ``tune`` does not use.

Imports no TVM.
"""
