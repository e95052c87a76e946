# SPDX-License-Identifier: Apache-2.0
"""What ``tune`` prints of a model: a summary or JSON, beside the time of what it came from."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..tuning.result import Latency, TuneResult


def shown(result: "TuneResult", options: Any) -> str:
    """The text of a result, as the options ask for it."""
    from ..tuning.summary import summary

    beside = [_beside(one) if options.against else {} for one in result.each_shape]
    return _as_json(result, beside) if options.json else summary(result, beside)


def _beside(result: Any) -> "Mapping[str, Latency]":
    """The times beside the reference; none, and a sentence, where that cannot run the model."""
    try:
        latencies: Mapping[str, Latency] = result.beside_reference()
        return latencies
    except ValueError as error:  # A ModelError: the result is not lost for it.
        print(f"droplet-ms tune: {error}", file=sys.stderr)
        return {}


def _as_json(result: "TuneResult", beside: "Sequence[Mapping[str, Latency]]") -> str:
    content = json.loads(result.as_json())
    for shown, latencies in zip(content.get("of_shapes", [content]), beside, strict=True):
        if latencies:
            shown["beside"] = {
                name: {
                    "median": 1e3 * latency.median,
                    "quartiles": [1e3 * latency.quartiles[0], 1e3 * latency.quartiles[2]],
                }
                for name, latency in latencies.items()
            }
    return json.dumps(content, indent=1)
