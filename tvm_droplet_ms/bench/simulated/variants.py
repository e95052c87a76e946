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
"""The variants of ``DropletStrategy`` that simulated searches compare, by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...draft import SymbolDraft
from ...search_strategy import DropletStrategy
from ..compare.results import CompareError


@dataclass(frozen=True)
class Beliefs:
    """What has learned from other workloads than the judged ones.

    Parameters
    ----------
    draft, prior : Path | None
        The files of a draft and of a model; None where no variant uses one.
    """

    draft: Path | None = None
    prior: Path | None = None


def _draft(beliefs: Beliefs) -> SymbolDraft:
    if beliefs.draft is None:
        raise CompareError(
            "a variant uses a draft, and there is none: give --draft FILE, one that has not "
            "learned from the judged spaces (bench.compare_drafts --write FILE --without SPACES)"
        )
    return SymbolDraft.from_file(beliefs.draft)


def _prior(beliefs: Beliefs) -> Path:
    if beliefs.prior is None:
        raise CompareError(
            "a variant uses a prior, and there is none: give --prior FILE, a model that has not "
            "learned from the judged spaces (droplet-ms pretrain)"
        )
    return beliefs.prior


VARIANTS: Mapping[str, Callable[[Beliefs], DropletStrategy]] = {
    "neither": lambda _: DropletStrategy(prior=None, draft=None),
    "draft": lambda beliefs: DropletStrategy(prior=None, draft=_draft(beliefs)),
    "prior": lambda beliefs: DropletStrategy(prior=_prior(beliefs), draft=None),
    "both": lambda beliefs: DropletStrategy(prior=_prior(beliefs), draft=_draft(beliefs)),
}
"""To compare a change, add it here by a name of its own, and name what it is compared with."""


def make_variant(name: str, beliefs: Beliefs) -> DropletStrategy:
    """Make the strategy of a run.

    Raises
    ------
    CompareError
        If there is no such variant, or it lacks a file.
    """
    if name not in VARIANTS:
        raise CompareError(f"{name!r} is no variant, expected one of {', '.join(VARIANTS)}")
    return VARIANTS[name](beliefs)
