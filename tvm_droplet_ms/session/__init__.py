# SPDX-License-Identifier: Apache-2.0
"""A run on disk and on the clock: files, database, locks, target, threads, stops, roofline."""
