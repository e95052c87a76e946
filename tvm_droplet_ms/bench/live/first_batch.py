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
"""Child process of ``start``: a user's program, up to the building of its first batch.

It is started as a script, has the same imports as such a program, in that order, and no others of
this package before it has been timed.
"""

import time

FIRST_LINE = time.time()

import json  # noqa: E402
import os  # noqa: E402
import shutil  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

STAMPS = {"Python": FIRST_LINE}
"""When each part had ended, as ``time.time()`` gives it."""


def stamp(name: str) -> None:
    """Note the time at which a part has ended, the first time."""
    STAMPS.setdefault(name, time.time())


def main() -> None:
    """Tune until the first batch reaches the builder, which ends the process."""
    task = json.loads(sys.argv[3])
    settings = task["settings"]

    from tvm import te
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.meta_schedule.builder import LocalBuilder
    from tvm.s_tir.meta_schedule.runner import LocalRunner
    from tvm.s_tir.meta_schedule.testing import te_workload
    from tvm.s_tir.meta_schedule.utils import cpu_count
    from tvm.target import Target

    stamp("import of tvm")
    # A program with TVM's strategy, builder and runner does without this package.
    strategy: Any = settings["strategy"]
    if strategy == "droplet":
        from tvm_droplet_ms import DropletStrategy

        strategy = DropletStrategy()
    if settings["method"] == "ours":
        from tvm_droplet_ms.measure import fast_measure
    stamp("import of tvm_droplet_ms")
    target = Target(
        {
            "kind": "llvm",
            "mcpu": str(Target.from_device("cpu").attrs["mcpu"]),
            "num-cores": cpu_count(logical=False),
        }
    )
    function, *shape = settings["layer"]
    mod = te.create_prim_func(getattr(te_workload, function)(*shape))
    stamp("target and kernel")
    if settings["method"] == "ours":
        tools = dict(fast_measure(target))
    else:
        tools = {"builder": LocalBuilder(), "runner": LocalRunner()}
    stamp("builder and runner")
    stamp_calls(ms)

    work_dir = Path(task["out"], "work")
    # A database that is there would be resumed.
    shutil.rmtree(work_dir, ignore_errors=True)
    with ms.Profiler() as profiler:
        ms.tune_tir(
            mod,
            target,
            str(work_dir),
            max_trials_global=64,
            num_trials_per_iter=64,
            builder=first_batch(task, tools, profiler),
            runner=tools["runner"],
            strategy=strategy,
            seed=settings["seed"],
        )


def stamp_calls(ms: Any) -> None:
    """Stamp before and after the first TuneContext is made, and before the scheduler begins."""
    make_context, tune = ms.TuneContext.__init__, ms.TaskScheduler.tune

    def make_and_stamp(*args: Any, **kwargs: Any) -> None:
        stamp("loggers")
        make_context(*args, **kwargs)
        stamp("first TuneContext")

    def stamp_and_tune(*args: Any, **kwargs: Any) -> None:
        stamp("cost model and database")
        tune(*args, **kwargs)

    ms.TuneContext.__init__, ms.TaskScheduler.tune = make_and_stamp, stamp_and_tune


def first_batch(task: dict[str, Any], tools: dict[str, Any], profiler: Any) -> Any:
    """A builder that builds one candidate of the first batch, writes the times, and exits."""
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.builder import PyBuilder

    @derived_object
    class FirstBatch(PyBuilder):  # type: ignore[misc]
        def build(self, build_inputs):  # type: ignore[no-untyped-def]
            sent = time.time()
            scopes = {str(name): float(secs) for name, secs in profiler.get().items()}
            (built,) = tools["builder"].build([build_inputs[0]])
            times = {"started": task["started"], "sent": sent, "built": time.time()}

            from tvm.s_tir.meta_schedule.utils import remove_build_dir
            from tvm_droplet_ms.profile import breakdown

            if built.error_msg is None:
                remove_build_dir(built.artifact_path)
            error = None if built.error_msg is None else str(built.error_msg)
            parts = breakdown(
                scopes, start_secs=0.0, wall_secs=0.0, build=None, workers=1, run=None
            )
            proposing = parts["proposing"]
            result = {"stamps": STAMPS, **times, "proposing": proposing, "error": error}
            Path(sys.argv[2]).write_text(json.dumps(result))
            if task["settings"]["method"] == "ours":
                for tool in tools.values():
                    tool.close()
            sys.stdout.flush()
            os._exit(0)

    return FirstBatch()


if __name__ == "__main__":
    main()
