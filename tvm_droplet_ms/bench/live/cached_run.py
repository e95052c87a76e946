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
"""Child process of ``cached``: tune a layer once, measuring only what the cache does not know."""

from typing import Any

from ...host import host_target
from ...measure import fast_measure
from .cached_measure import CachedMeasure
from .environment import this_machine
from .layers import ALL_LAYERS, make_module
from .store import Task, serve
from .timing_cache import TimingCache
from .tuning import tune_layer


def tune_cached(task: Task) -> dict[str, Any]:
    """Tune the layer of ``settings["layer"]`` with the cache ``settings["cache"]``.

    Returns
    -------
    result : dict[str, Any]
        That of ``tune_layer``, with ``workload``, the key of the layer's module, and ``measured``,
        the number of modules that the cache did not know.
    """
    settings = task.settings
    layer = settings["layer"]
    with TimingCache(settings["cache"], this_machine()) as cache:
        mod = make_module(ALL_LAYERS[layer])
        measure = CachedMeasure(cache, mod, layer, settings["seed"])
        tools = fast_measure(host_target())
        try:
            result = tune_layer(task, measure.around(tools), [measure.callback()])
        finally:
            for tool in tools.values():
                tool.close()
    return result | {"workload": measure.workload, "measured": measure.measured}


if __name__ == "__main__":
    serve(tune_cached)
