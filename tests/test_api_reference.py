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
"""The API reference builds from the docstrings, without a warning, and has every public name."""

import re
import subprocess
import sys
from pathlib import Path

import tvm_droplet_ms

API = Path(__file__).parents[1] / "docs" / "api"


def test_the_reference_has_the_public_names_with_their_parameters(tmp_path):
    pages = tmp_path / "pages"
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-d", str(tmp_path / "trees")]
    ended = subprocess.run(
        [*command, "-b", "text", str(API), str(pages)], capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    text = (pages / "index.txt").read_text()
    described = set(re.findall(r"tvm_droplet_ms\.(?:\w+\.)?(\w+)\(", text))
    assert set(tvm_droplet_ms.__all__) <= described
    # From the docstring of tune_kernel, as a reader sees it.
    assert re.search(r"\* \*\*patience\*\* \(.*\)\s+--?\s+Trials\s+without\s+a\s+gain", text)
