# SPDX-License-Identifier: Apache-2.0
"""A builder and a runner of ``tune_kernel`` that build and run nothing."""

import tempfile
from concurrent.futures import Future

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.builder import BuilderResult, PyBuilder
from tvm.s_tir.meta_schedule.runner import PyRunner
from tvm_droplet_ms import DropletStrategy
from tvm_droplet_ms.measure.runner import PromptRunnerFuture
from tvm_droplet_ms.tuning.kernel import tune_kernel
from tvm_droplet_ms.tuning.kernel.check import verification

GOOD_SECS = (2e-6, 1e-6, 3e-6)


@derived_object
class StubBuilder(PyBuilder):
    """Builds nothing, or fails with an error."""

    def __init__(self, error=None):
        super().__init__()
        self.error = error

    def build(self, build_inputs):
        """TVM deletes the folders of the paths."""
        if self.error is not None:
            return [BuilderResult(None, self.error) for _ in build_inputs]
        folders = [tempfile.mkdtemp(prefix="stub_builder_") for _ in build_inputs]
        return [BuilderResult(f"{folder}/kernel.so", None) for folder in folders]

    def close(self):
        pass


@derived_object
class StubRunner(PyRunner):
    """Gives the next results of an endless list."""

    def __init__(self, results):
        super().__init__()
        self.results = results
        self.count = 0

    def run(self, runner_inputs):
        futures = []
        for _ in runner_inputs:
            future = Future()
            future.set_result(self.results[self.count % len(self.results)])
            self.count += 1
            futures.append(PromptRunnerFuture(future))
        return futures

    def close(self):
        pass


class SharedPool:
    """The workers that check, for all tests: it takes seconds to start them."""

    def __init__(self):
        self.pool = verification.verifying_pool()
        self.submit = self.pool.submit

    def close(self):
        pass


def quick_tune(mod, work_dir, trials=4, **options):
    """Tune a kernel without predictions, which take most of the time."""
    options = {"progress": None, "strategy": DropletStrategy(prior=None, draft=None)} | options
    return tune_kernel(mod, trials=trials, work_dir=work_dir, **options)
