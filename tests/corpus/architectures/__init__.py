# SPDX-License-Identifier: Apache-2.0
"""Networks of the architectures that people have, in small sizes, with random weights.

``python -m tests.corpus.architectures --out FILE [NAME ...]`` holds each to: accepted and right.
"""
