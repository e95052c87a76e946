# SPDX-License-Identifier: Apache-2.0
"""The command ``droplet-ms pretrain``."""

import argparse
from pathlib import Path
from typing import Any, Literal

from .arguments import command, fail, seed


def add_command(commands: Any) -> None:
    """Add the command to the parser's subcommands; it sets ``run`` to the function to call."""
    pretrain = command(
        commands, "pretrain", _pretrain, "train a cost model from the databases of earlier runs"
    )
    pretrain.add_argument(
        "data",
        nargs="+",
        type=Path,
        metavar="DATA",
        help="the work_dir of a tuning run, or a .npz file of `droplet-ms space features`",
    )
    pretrain.add_argument("--out", type=Path, required=True, help="output file of the model")
    pretrain.add_argument(
        "--model",
        choices=["trees", "treegru", "pacm", "pacm-stores"],
        default="trees",
        help="boosted trees, or a network of the package tvm_droplet_papers, whose training needs "
        "JAX: treegru, recurrent on the loop tree; pacm, attention over data movements, after "
        "Pruner; pacm-stores, the same with MetaSchedule's features of stores (default: "
        "%(default)s)",
    )
    pretrain.add_argument(
        "--objective",
        choices=["rank", "regression"],
        help="fit the order of each pair of programs (pacm by LambdaRank), or the relative "
        "throughput (default: rank for pacm and pacm-stores, regression otherwise)",
    )
    pretrain.add_argument(
        "--target",
        help="the target to learn from, by a part of its text, where the records are of several",
    )
    pretrain.add_argument(
        "--mix-targets",
        action="store_true",
        help="learn from the records of all targets; the model is for --target",
    )
    pretrain.add_argument("--seed", type=seed, default=0, help="seed of the training (default: 0)")


def _pretrain(options: argparse.Namespace) -> int:
    """Train a cost model from MetaSchedule databases and from files of training data. Prints how
    well it ranks workloads that were held out of the training."""
    from ..measure import fast_start

    fast_start()
    from ..cost_model.kinds import extractor_of, network_kind
    from ..cost_model.pretrain import pretrain, read_training_data

    try:
        if options.model != "trees":
            # Reading takes minutes: report missing JAX first.
            network_kind(options.model).network.trainer()
        pretrain(
            read_training_data(options.data, extractor=extractor_of(options.model)),
            options.out,
            model=options.model,
            objective=options.objective or _default_objective(options.model),
            target=options.target,
            mix_targets=options.mix_targets,
            seed=options.seed,
        )
    # ValueError: training data that cannot be read or learned from. ImportError: JAX is missing.
    # OSError: the output cannot be written.
    except (ValueError, ImportError, OSError) as error:
        return fail("pretrain", error)
    return 0


def _default_objective(model: str) -> Literal["rank", "regression"]:
    return "rank" if model in ("pacm", "pacm-stores") else "regression"
