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
"""Measured spaces and samples that come with the package."""

from pathlib import Path

DIRECTORY = Path(__file__).parent / "spaces"

SAMPLES = Path(__file__).parent / "samples"

HELD_OUT = frozenset(
    {"conv1d", "conv2d_bn_relu", "conv2d_dilated", "dense_flat", "depthwise_stride2"}
)
"""Spaces on which nothing of a strategy was chosen: they show whether a choice made on the others
holds elsewhere."""

_SUFFIXES = (".json", ".json.gz")


def shipped_spaces() -> dict[str, Path]:
    """Files of the package's spaces by name, in alphabetical order."""
    return _files(DIRECTORY)


def shipped_samples() -> dict[str, Path]:
    """Files of the package's samples by name, in alphabetical order.

    A cost model learns from them; nothing can be searched in a sample.
    """
    return _files(SAMPLES)


def shipped_training_files() -> list[Path]:
    """All files of the package that a cost model can learn from."""
    return [*shipped_spaces().values(), *shipped_samples().values()]


def find_space(text: str) -> Path:
    """File of a space or a sample: by its name in the package, or a path."""
    return (shipped_samples() | shipped_spaces()).get(text, Path(text))


def _files(directory: Path) -> dict[str, Path]:
    files = {
        path.name.removesuffix(suffix): path
        for suffix in _SUFFIXES
        for path in directory.glob(f"*{suffix}")
    }
    return dict(sorted(files.items()))
