# SPDX-License-Identifier: Apache-2.0
"""Points ranked by a draft before anything is replayed."""
