# SPDX-License-Identifier: Apache-2.0
"""Keeps PyTorch out of the programs that tests start: TVM imports it where it finds it.

That takes longer than all else that they import. Python runs this file at its start.
"""

import sys


class _NoPyTorch:
    """By this name, worker servers let PyTorch in for their tasks."""

    @staticmethod
    def find_spec(name, *_):
        if name == "torch":
            raise ModuleNotFoundError("PyTorch is kept out", name=name)


sys.meta_path.insert(0, _NoPyTorch())
