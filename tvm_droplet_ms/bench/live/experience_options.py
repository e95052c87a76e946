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
"""The options ``--prior`` and ``--known`` of commands that tune. Imports no TVM."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

NAMES = ("prior", "known")


def add_experience_options(parser: ArgumentParser) -> None:
    """Add the options."""
    for name in NAMES:
        parser.add_argument(
            f"--{name}",
            metavar="FILE",
            help=f"what `tune({name}=...)` takes, such as one that has not learned from the models",
        )


def add_draft_option(parser: ArgumentParser) -> None:
    """Add the option ``--draft``, for commands that compare search methods."""
    parser.add_argument("--draft", metavar="FILE", help="what `SymbolDraft.from_file` takes")


def given_experience(args: Namespace) -> dict[str, str]:
    """Return the absolute paths of the given files, by the names of the options."""
    given = {name: vars(args).get(name) for name in (*NAMES, "draft")}
    return {name: str(Path(path).resolve()) for name, path in given.items() if path}
