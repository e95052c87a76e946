# SPDX-License-Identifier: Apache-2.0
"""Files of float16 beside the same in float32: ``python -m tests.corpus.halves --out FILE``."""

import argparse
import contextlib
import io
import json
import tempfile
import warnings
from collections.abc import Iterable
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import numpy as np

from .beside import row_deviation
from .decoders.timing import in_turns

NAMES = (
    "resnet",
    "mobilenet_v2",
    "efficientnet",
    "convnextv2",
    "vit",
    "unet",
    "bert",
    "gpt2",
    "whisper_encoder",
    "crnn",
)
"""Of ``tests.corpus.architectures``."""


def measure(name: str, budget_s: float) -> dict[str, Any]:
    """Tune a network as a file of float32 and of float16, without a trial, and time both in turns.

    ONNX Runtime runs both files too, on one thread, as ``tune`` does. The deviation is that from
    ONNX Runtime's outputs of the file of float32.
    """
    import onnx
    import torch
    from onnxruntime.transformers.float16 import convert_float_to_float16

    from tvm_droplet_ms import tune

    from .architectures.registry import arguments_of, build, leaves

    warnings.simplefilter("ignore")
    module, inputs = build(name)
    for part in module.modules():
        if hasattr(part, "config") and hasattr(part.config, "use_cache"):
            part.config.use_cache = False
    arguments, keywords = arguments_of(inputs)
    arrays = {"float32": leaves(inputs)}
    arrays["float16"] = [_narrow(array) for array in arrays["float32"]]
    with tempfile.TemporaryDirectory() as folder:
        files = {kind: str(Path(folder) / f"{kind}.onnx") for kind in arrays}
        with contextlib.redirect_stdout(io.StringIO()):
            program = torch.onnx.export(module, arguments, kwargs=keywords, dynamo=True)
        program.save(files["float32"])
        onnx.save(convert_float_to_float16(onnx.load(files["float32"])), files["float16"])
        results = {
            kind: tune(path, time_budget_s=budget_s, trials=0, progress=None)
            for kind, path in files.items()
        }
        theirs = {kind: _onnx_runtime(path, arrays[kind]) for kind, path in files.items()}
        outputs = results["float16"].compiled(arrays["float16"])
        expected = [each.astype(found.dtype) for each, found in zip(theirs["float32"](), outputs)]
        runs = {f"tune {kind}": each.compiled.timer(arrays[kind]) for kind, each in results.items()}
        runs |= {f"ONNX Runtime {kind}": run for kind, run in theirs.items()}
        secs = in_turns(runs, 15)
    return {
        "name": name,
        "deviation": row_deviation(outputs, expected),
        "notes": list(results["float16"].notes),
        "secs": secs,
    }


def table(rows: Iterable[dict[str, Any]]) -> str:
    """The rows for readers: times, and the median of the ratios of the rounds."""
    lines = [
        "| network | float32, ms | float16, ms | over float32 | over ONNX Runtime's float16 |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    ratios = []
    for row in rows:
        ours, theirs, wide = (
            np.array(row["secs"][each])
            for each in ("tune float16", "ONNX Runtime float16", "tune float32")
        )
        ratios.append(median(wide / ours))
        lines.append(
            f"| {row['name']} | {1e3 * median(wide):.2f} | {1e3 * median(ours):.2f} | "
            f"{ratios[-1]:.2f} | {median(theirs / ours):.2f} |"
        )
    lines.append(f"\nGeometric mean over float32: {geometric_mean(ratios):.2f}.")
    return "\n".join(lines)


def _narrow(array: np.ndarray) -> np.ndarray:
    return array.astype("float16") if array.dtype == "float32" else array


def _onnx_runtime(path: str, arrays: list[np.ndarray]) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    given = dict(zip((each.name for each in session.get_inputs()), arrays, strict=True))
    return lambda: session.run(None, given)


def main() -> None:
    """Measure, a row as JSON a line, or print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--report", action="store_true", help="print the table")
    parser.add_argument("names", nargs="*", default=NAMES)
    args = parser.parse_args()
    if not args.report:
        with args.out.open("a") as file:
            for name in args.names:
                print(json.dumps(measure(name, args.seconds)), file=file, flush=True)
    print(table(map(json.loads, args.out.read_text().splitlines())))


if __name__ == "__main__":
    main()
