# SPDX-License-Identifier: Apache-2.0
"""The environment of a run: files, database, locks, target, threads, stops, roofline."""
