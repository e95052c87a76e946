# SPDX-License-Identifier: Apache-2.0
"""Decoders of transformers with a cache, and products with packed weights, beside others.

``python -m tests.corpus.decoders --out rows.jsonl`` measures, ``--report`` prints the tables.
"""
