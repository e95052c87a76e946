# SPDX-License-Identifier: Apache-2.0
"""The command ``droplet-ms space features``."""

import argparse
from pathlib import Path
from typing import Any

from ..arguments import fail


def add_features(actions: Any) -> None:
    """Add the command to the actions of ``droplet-ms space``; it sets ``run``."""
    features = actions.add_parser(
        "features",
        help="write the features and times of measured schedules as training data for a cost model",
        description="Replay the measured schedules of spaces and samples, and write the features "
        "and the measured times of each workload to a file that `droplet-ms pretrain` reads. A "
        "file that is up to date is kept.",
    )
    features.add_argument(
        "spaces",
        nargs="+",
        metavar="NAME",
        help="files, names of the package's spaces and samples, or `shipped` for all of those",
    )
    features.add_argument("--out", type=Path, required=True, help="directory of the files")
    features.add_argument(
        "--model",
        choices=["trees", "treegru", "pacm", "pacm-stores"],
        default="trees",
        help="kind of model to train on the features (default: %(default)s)",
    )
    features.add_argument(
        "--trust",
        nargs="+",
        default=[],
        metavar="MODULE:FUNCTION",
        help="workload functions that space files may name; they are imported and run",
    )
    features.set_defaults(run=_features)


def _features(options: argparse.Namespace) -> int:
    from ...bench.definitions import UnknownDefinitionError, trust
    from ...bench.library import find_space, shipped_training_files
    from ...bench.space import SpaceError
    from ...bench.training import read_space_once
    from ...cost_model.pretrained_model import EXTRACTORS
    from ...measure import fast_start

    fast_start()
    trust(*options.trust)
    files = [
        file
        for text in options.spaces
        for file in (shipped_training_files() if text == "shipped" else [find_space(text)])
    ]
    try:
        for file in files:
            name = file.name.removesuffix(".gz").removesuffix(".json")
            out = options.out / f"{name}.npz"
            workload = read_space_once(file, out, extractor=EXTRACTORS[options.model]())
            print(f"{out}: {len(workload.secs)} records of {workload.name}", flush=True)
    except (SpaceError, UnknownDefinitionError) as error:
        return fail("space", error)
    return 0
