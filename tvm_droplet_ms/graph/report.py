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
"""What a graph search has to say."""

from dataclasses import dataclass, field


@dataclass
class FunctionReport:
    """What became of one function.

    Attributes
    ----------
    name : str
        The function.
    note : str
        Why it was left alone, or what went wrong; empty if nothing did.
    search : str
        "saturated": all equal graphs fit the limit. "tree search": they did not. "none": left
        alone.
    optimal : bool
        Whether no cheaper graph exists under these rules and prices. Only after a saturation.
    before_secs, after_secs : float
        The prices of the graph as it came and as it is now.
    nodes : int
        E-nodes at the end.
    rules : dict[str, int]
        How often each rule changed the e-graph.
    conversions : int
        How many tensors change their layout.
    weight_bytes_before, weight_bytes_after : int
        Bytes of the constants.
    search_secs : float
        Seconds of everything.
    """

    name: str
    note: str = ""
    search: str = "none"
    optimal: bool = False
    before_secs: float = 0.0
    after_secs: float = 0.0
    nodes: int = 0
    rules: dict[str, int] = field(default_factory=dict)
    conversions: int = 0
    weight_bytes_before: int = 0
    weight_bytes_after: int = 0
    search_secs: float = 0.0

    def __str__(self) -> str:
        if self.search == "none":
            return f"{self.name}: left alone, {self.note}"
        proof = "no cheaper graph under these rules and prices" if self.optimal else self.search
        lines = [
            f"{self.name}: estimated {self.before_secs * 1e6:.1f} us before, "
            f"{self.after_secs * 1e6:.1f} us after ({proof})",
            f"  {self.nodes} e-nodes, {self.conversions} layout conversions, "
            f"{self.search_secs:.2f} s, weights {self.weight_bytes_before} bytes before, "
            f"{self.weight_bytes_after} after",
        ]
        lines += [f"  {name}: {count}" for name, count in self.rules.items()]
        return "\n".join([*lines, f"  {self.note}"] if self.note else lines)
