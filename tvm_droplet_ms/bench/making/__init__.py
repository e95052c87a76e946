# SPDX-License-Identifier: Apache-2.0
"""Makes spaces and samples: enumerates, builds, times and collects them, and can resume."""
