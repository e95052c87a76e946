# SPDX-License-Identifier: Apache-2.0
"""Imported by the server that processes are forked from: the first context of a process is slow."""

from .trial import warm_up

warm_up()
