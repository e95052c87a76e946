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
"""Variants of ``tune``: each leaves one part out. Imports no TVM."""

from collections.abc import Mapping

FULL = "full"
"""The variant that the others are compared with."""

VARIANTS: Mapping[str, str] = {
    FULL: "`tune` as it is",
    "no layout": "convolutions in the layout in which they were imported",
    "no folding": "constants, batch norms and pads are computed in every run",
    "no packing": "weights keep the layout of the graph",
    "no known schedules": "no schedules of other models, for picks and search",
    "no first picks": "the first valid schedule until a kernel is measured",
    "no clock scheduler": "the next kernel by the rule of TVM's gradient scheduler",
    "no transfer": "no kernel starts with the decisions of similar ones",
    "no prior": "no cost model before anything is measured, for picks and search",
    "winograd": "`tune` with `exact=False`",
}
"""What each variant is, in words."""
