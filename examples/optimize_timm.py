# SPDX-License-Identifier: Apache-2.0
"""Search for a faster graph of Inception-v3, NASNet-A or another model of timm.

    pip install timm
    python examples/optimize_timm.py --model inception_v3 --seconds 600 --work-dir timm_logs

The weights are random: nothing is downloaded. The model is prepared as `tune` does it. Kernels that
equal graphs need are timed, and the best graphs are run beside the prepared one.
"""

import argparse
import tempfile

import timm
import torch

from tvm.relax.frontend.torch import from_exported_program
from tvm_droplet_ms.model.prepare import prepare_graph
from tvm_droplet_papers.graph import optimize


def imported(name):
    """A model of timm as a module of Relax, with its weights as constants."""
    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False).eval()
    image = torch.zeros(1, *model.default_cfg["input_size"])
    program = torch.export.export(model, (image,))
    return from_exported_program(program, unwrap_unit_return_tuple=True)


def main() -> None:
    """Optimize one model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="inception_v3", help="or nasnetalarge, or any of timm")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--work-dir", default=tempfile.mkdtemp())
    args = parser.parse_args()
    graph = prepare_graph()(imported(args.model))
    result = optimize(graph, "auto", work_dir=args.work_dir, time_budget_s=args.seconds)
    (report,) = result.reports
    print(report)
    if report.measured and report.measured.graphs:
        graphs = ("the input", report.measured.taken)
        before, after = (1e3 * report.measured.whole_secs(graph) for graph in graphs)
        print(f"{args.model}: {before:.1f} ms before, {after:.1f} ms after")


if __name__ == "__main__":
    main()
