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
"""One file of a prior and a draft that have learned from the same spaces. Imports no TVM."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile, ZipInfo

from ...cost_model.archive import replacing

_PRIOR, _DRAFT = "prior.model", "symbols.draft"


def write_both(
    out: Path, learn_prior: Callable[[Path], None], learn_draft: Callable[[Path], None]
) -> None:
    """Write a prior and a draft to one file, which is complete or absent.

    Parameters
    ----------
    out : Path
        The file.
    learn_prior, learn_draft : Callable[[Path], None]
        Write the file of the prior, and that of the draft.
    """
    with TemporaryDirectory() as folder, replacing(out) as partial, ZipFile(partial, "w") as both:
        for name, learn in ((_PRIOR, learn_prior), (_DRAFT, learn_draft)):
            file = Path(folder, name)
            learn(file)
            # Without the time of the file: the same content makes the same bytes.
            both.writestr(ZipInfo(name), file.read_bytes())


@contextmanager
def both_files(path: Path) -> Iterator[tuple[Path, Path]]:
    """The files of the prior and of the draft that ``write_both`` wrote, while they are read."""
    with TemporaryDirectory() as folder, ZipFile(path) as both:
        yield Path(both.extract(_PRIOR, folder)), Path(both.extract(_DRAFT, folder))
