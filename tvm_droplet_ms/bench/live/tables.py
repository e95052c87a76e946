# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""Tables of text. Imports no TVM."""

import statistics
from collections.abc import Sequence


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]], markdown: bool) -> str:
    """Align the columns, the first to the left; rows that are too short are filled with ``-``."""
    cells = [list(header)]
    cells += [[*row, *["-"] * (len(header) - len(row))] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = [[row[0].ljust(widths[0]), *(map(str.rjust, row[1:], widths[1:]))] for row in cells]
    if not markdown:
        return "\n".join("  ".join(line).rstrip() for line in lines)
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in [lines[0], rule, *lines[1:]])


def spread(ratios: Sequence[float]) -> str:
    """The geometric mean, and the smallest and the largest."""
    return f"{statistics.geometric_mean(ratios):.2f} [{min(ratios):.2f}-{max(ratios):.2f}]"


def last_line(error: str) -> str:
    """The message of an error: TVM puts it after the stack."""
    lines = [line.strip() for line in error.strip().splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no message"
