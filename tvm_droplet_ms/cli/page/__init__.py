# SPDX-License-Identifier: Apache-2.0
"""A report page about a run: its measurements, its gains over time, and the worth of decisions.

``run_history`` reads a work directory, ``decision_worth`` compares its trials, and ``page`` writes
one self-contained HTML file and the underlying numbers as JSON.
"""
