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
"""The command ``droplet-ms pretrain``."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..cost_model.features.program_features import Extractor
    from ..cost_model.training.training_data import MeasuredWorkload


def add_command(commands: Any) -> None:
    """Add the command to the parser's subcommands; it sets ``run`` to what runs it."""
    command = commands.add_parser(
        "pretrain",
        help="train a cost model from the databases of earlier runs",
        description="Train a cost model from MetaSchedule databases, the work_dir of each run, and "
        "from measured spaces and samples. Prints how well it ranks workloads that it has not "
        "learned from, each held out in turn.",
    )
    command.add_argument(
        "experience",
        nargs="+",
        metavar="DB",
        help="a work_dir, the file or the name of a measured space or sample, or `shipped` for all "
        "that come with the package",
    )
    command.add_argument("--out", type=Path, required=True, help="the file of the model")
    command.add_argument(
        "--model",
        choices=["trees", "treegru"],
        default="trees",
        help="boosted trees, or a recurrent network on the loop tree, which takes PyTorch "
        "(default: %(default)s)",
    )
    command.add_argument(
        "--objective",
        choices=["rank", "regression"],
        default="regression",
        help="what to fit: the order of each pair, or the relative throughput (default: "
        "%(default)s)",
    )
    command.add_argument(
        "--target", help="of which target, by a part of its text, where the records are of several"
    )
    command.add_argument(
        "--mix-targets",
        action="store_true",
        help="learn from the records of other targets too; the model is for --target",
    )
    command.add_argument("--seed", type=int, default=0, help="of the training (default: 0)")
    command.set_defaults(run=_pretrain)


def _pretrain(options: argparse.Namespace) -> int:
    from ..measure import fast_start

    fast_start()
    from ..bench.space import SpaceError
    from ..cost_model.pretrained_model import EXTRACTORS
    from ..cost_model.training.pretrain import pretrain

    try:
        if options.model == "treegru":
            # Reading takes minutes: what is missing is to be told before.
            import_module("tvm_droplet_ms.cost_model.tree_gru.training")
        pretrain(
            read_experience(options.experience, EXTRACTORS[options.model]()),
            options.out,
            model=options.model,
            objective=options.objective,
            target=options.target,
            mix_targets=options.mix_targets,
            seed=options.seed,
        )
    # ValueError: mixed-up targets, or a database that cannot be read. ImportError: no PyTorch.
    except (ValueError, SpaceError, ImportError) as error:
        print(f"droplet-ms pretrain: error: {error}", file=sys.stderr)
        return 1
    return 0


def read_experience(given: Sequence[str], extractor: "Extractor") -> "list[MeasuredWorkload]":
    """What databases, spaces and samples hold.

    Parameters
    ----------
    given : Sequence[str]
        Work directories; files or names of spaces and samples; "shipped" for all of the package's.
    extractor : Extractor
        What makes the features.

    Raises
    ------
    ValueError
        If a directory holds no database, or one that cannot be read.
    SpaceError
        If a file is no space, or this TVM makes other modules of its points.
    """
    from ..bench.library import find_space, shipped_training_files
    from ..bench.training import read_space
    from ..cost_model.training.pretrain import read_databases

    files = [
        file
        for text in given
        for file in (shipped_training_files() if text == "shipped" else [find_space(text)])
    ]
    directories = [file for file in files if not file.is_file()]
    spaces = [file for file in files if file.is_file()]
    workloads = read_databases(directories, extractor=extractor)
    return workloads + [read_space(space, extractor=extractor) for space in spaces]
