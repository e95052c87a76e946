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
"""The measured spaces that come with the package."""

from pathlib import Path

DIRECTORY = Path(__file__).parent / "spaces"

ASIDE = frozenset({"conv1d", "conv2d_bn_relu", "conv2d_dilated", "dense_flat", "depthwise_stride2"})
"""Spaces on which nothing of a strategy is chosen: they show whether what was chosen on the others
holds elsewhere."""


def shipped_spaces() -> dict[str, Path]:
    """The files of the spaces of the package, by name, in alphabetical order."""
    return {path.name.removesuffix(".json"): path for path in sorted(DIRECTORY.glob("*.json"))}


def find_space(text: str) -> Path:
    """The file of a space: the name of one of the package's, or a path."""
    return shipped_spaces().get(text, Path(text))
