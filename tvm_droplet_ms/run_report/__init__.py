# SPDX-License-Identifier: Apache-2.0
"""A page about a run: what was measured, when it got faster, which decisions mattered.

``run_history`` reads a work directory, ``decision_worth`` compares its trials, and ``page`` writes
one self-contained HTML file and the JSON that it was made from.
"""
