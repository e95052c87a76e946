# SPDX-License-Identifier: Apache-2.0
"""Keeps PyTorch out of the programs that tests start: TVM imports it where it finds it.

That takes longer than all else that they import. Python runs this file at its start.
"""

import runpy
from pathlib import Path

POOL = Path(__file__).parents[2] / "tvm_droplet_ms" / "measure" / "pool"
exec(runpy.run_path(str(POOL / "pytorch.py"))["KEEP_OUT"], {"sys": __import__("sys")})
