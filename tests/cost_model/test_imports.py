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
"""What can be imported and asked for without TVM."""

import subprocess
import sys
from pathlib import Path

import tvm_droplet_ms

WITHOUT_TVM = f"""
import sys, types
for name in ("tvm", "tvm_ffi", "tvm_droplet_ms.bench"):
    sys.modules[name] = None
# The package without its own __init__.py, which may import TVM.
package = types.ModuleType("tvm_droplet_ms")
package.__path__ = [{str(Path(tvm_droplet_ms.__file__).parent)!r}]
sys.modules["tvm_droplet_ms"] = package
"""


def run(code: str) -> str:
    """The standard output of Python code in a process that cannot import TVM."""
    command = [sys.executable, "-c", WITHOUT_TVM + code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_package_and_the_pure_modules():
    run(
        "import tvm_droplet_ms.cost_model as cost_model\n"
        "assert 'TransferModel' in dir(cost_model)\n"
        "import tvm_droplet_ms.cost_model.throughput\n"
        "import tvm_droplet_ms.cost_model.archive\n"
        "import tvm_droplet_ms.cost_model.model_file\n"
        "import tvm_droplet_ms.cost_model.boosted_trees\n"
        "import tvm_droplet_ms.cost_model.features.store_features\n"
        "import tvm_droplet_ms.cost_model.features.context_relations\n"
        "import tvm_droplet_ms.cost_model.training.ranking\n"
        "import tvm_droplet_ms.cost_model.training.training_data\n"
        "import tvm_droplet_ms.cost_model.tree_gru.tree_gru\n"
    )


def test_help_of_pretrain():
    printed = run(
        "import argparse\n"
        "from tvm_droplet_ms.pretrain_command import add_commands\n"
        "parser = argparse.ArgumentParser()\n"
        "add_commands(parser.add_subparsers())\n"
        "try:\n"
        "    parser.parse_args(['pretrain', '--help'])\n"
        "except SystemExit as end:\n"
        "    sys.exit(end.code)\n"
    )
    assert "--mix-targets" in printed
    assert ".npz" in printed


def test_an_unknown_name():
    run(
        "import tvm_droplet_ms.cost_model as cost_model\n"
        "try:\n"
        "    cost_model.Knowledge\n"
        "except AttributeError as error:\n"
        "    assert 'Knowledge' in str(error)\n"
        "else:\n"
        "    raise SystemExit('found')\n"
    )
