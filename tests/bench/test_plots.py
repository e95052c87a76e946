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
"""Plots of a comparison, and the page that contains them."""

import base64
import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

from tvm_droplet_ms.bench.compare.comparison import Comparison
from tvm_droplet_ms.bench.compare.plots import make_page, quartiles, write_plots
from tvm_droplet_ms.bench.compare.results import CompareError, RunResult, RunSettings
from tvm_droplet_ms.bench.table import Trial

PNG = b"\x89PNG\r\n\x1a\n"
TIMES = {"one": [1.0, 2.0, 4.0], "two": [2.0, 4.0, 8.0]}


def result(strategy: str, space: str, seed: int, times: list[float]) -> RunResult:
    settings = RunSettings(space, "digest", strategy, seed, 8, 4, False, {}, "code")
    return RunResult(settings, tuple(Trial(1, t, t, 0.1, 0.1, 0.1, None) for t in times), 1.0, {})


def comparison(last: float = 2.0) -> Comparison:
    runs = [
        result("droplet", "one", 0, [4.0, 1.0]),
        result("droplet", "two", 0, [4.0, 2.0]),
        result("random", "one", 0, [4.0, 4.0, last]),
        result("random", "two", 0, [8.0, 8.0]),
    ]
    return Comparison(runs, TIMES)


def test_quartiles_are_over_the_runs() -> None:
    runs = np.array([[0.0, 1.0], [0.1, 1.0], [0.2, 1.0], [0.3, 1.0], [0.4, 0.0]])
    assert quartiles(runs).tolist() == [[0.1, 1.0], [0.2, 1.0], [0.3, 1.0]]


def test_there_is_an_image_over_all_spaces_and_one_of_each(tmp_path: Path) -> None:
    files = write_plots(comparison(), "the tables", tmp_path)
    assert [path.name for path in files] == ["index.html", "all-spaces.png", "one.png", "two.png"]
    images = [path.read_bytes() for path in files[1:]]
    assert all(image.startswith(PNG) for image in images)
    assert len(set(images)) == 3


def test_image_changes_with_its_runs_only(tmp_path: Path) -> None:
    before = write_plots(comparison(2.0), "", tmp_path / "before")[1:]
    after = write_plots(comparison(4.0), "", tmp_path / "after")[1:]
    same = [a.read_bytes() == b.read_bytes() for a, b in zip(before, after, strict=True)]
    assert same == [False, False, True]


def test_page_holds_images_and_needs_no_other_file(tmp_path: Path) -> None:
    page, *images = write_plots(comparison(), "a < b", tmp_path)
    text = page.read_text()
    assert "<pre>a &lt; b</pre>" in text
    sources = re.findall(r'src="([^"]*)"', text)
    prefix = "data:image/png;base64,"
    assert all(source.startswith(prefix) for source in sources)
    embedded = [base64.b64decode(source.removeprefix(prefix)) for source in sources]
    assert embedded == [image.read_bytes() for image in images]
    assert "href=" not in text and "http" not in text


def test_captions_are_escaped() -> None:
    assert 'alt="convergence on &lt;b&gt;&quot;"' in make_page("", "", {'<b>"': PNG})


def test_without_matplotlib_the_message_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CompareError, match=r"pip install 'tvm-droplet-ms\[bench\]'"):
        write_plots(comparison(), "", tmp_path)
