# SPDX-License-Identifier: Apache-2.0
"""The backend of ``torch.compile(module, backend="droplet")``.

TorchDynamo finds it by the entry point ``torch_dynamo_backends`` of this package. A graph that it
hands over is exported with its weights bound, tuned as ``tune`` does, and kept on disk.
"""

import hashlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..host import host_target
from ..runtime import InferenceSession, SessionError
from ..session.errors import ModelError
from .tuner import tune

logger = logging.getLogger(__name__)

CACHE = "TVM_DROPLET_MS_CACHE"
"""The environment variable with the directory of compiled graphs."""

_FIRST_SECS = 30.0
"""The most seconds for first picks."""

_OPTIONS = ("minutes", "threads", "tolerance", "precision", "exact")


def droplet(
    module: Any,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile a graph of TorchDynamo for this machine's CPU.

    The weights are those of the first call. A graph that cannot be compiled runs as PyTorch runs
    it, with a warning that says why: one with gradients, open extents, other devices, changed
    inputs, or operators that TVM's importer lacks.

    Parameters
    ----------
    module : torch.fx.GraphModule
        The graph.
    example_inputs : Sequence[Any]
        Its inputs in the first call, with parameters and buffers among them.
    options : Mapping[str, Any] | None
        ``minutes``: how long to tune; 0, the default, compiles with first picks in seconds.
        ``threads``, ``tolerance``, ``precision`` and ``exact``: as in ``tune``; ``threads``
        defaults to PyTorch's.
    mode : str | None
        Ignored.

    Returns
    -------
    run : Callable[..., Any]
        Takes the inputs of a call; returns a tuple of tensors.

    Raises
    ------
    ValueError
        If an option is unknown.
    """
    del mode
    chosen = dict(options or {})
    if unknown := [name for name in chosen if name not in _OPTIONS]:
        raise ValueError(f"options={{{unknown[0]!r}: ...}}: expected one of {', '.join(_OPTIONS)}")
    reason = _unsupported(module, example_inputs)
    if not reason:
        try:
            return _Compiled(module, example_inputs, chosen)
        except (ModelError, SessionError) as error:
            reason = str(error)
        # PyTorch's exporter raises many classes for graphs that it cannot export.
        except Exception as error:
            reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    logger.warning("a graph runs as PyTorch runs it: %s", reason)
    run: Callable[..., Any] = module.forward
    return run


class _Compiled:
    """A compiled graph, called with all inputs of the graph."""

    def __init__(self, module: Any, inputs: Sequence[Any], options: Mapping[str, Any]) -> None:
        import torch

        self._eager = module.forward
        static = _static_places(module, inputs)
        self._free = [place for place in range(len(inputs)) if place not in static]
        self._static = [(place, inputs[place]._version) for place in sorted(static)]
        self._is_stale = False
        free = [inputs[place] for place in self._free]
        bound = _bound_module(module, inputs, self._free)
        program = torch.export.export(bound, tuple(free), strict=False)
        if changed := _changed(program):
            raise ModelError(f"it changes {changed}")
        self._session = _session(program, free, options)

    def __call__(self, *inputs: Any) -> Any:
        # The library holds the weights of the first call.
        if self._is_stale or any(inputs[place]._version != seen for place, seen in self._static):
            if not self._is_stale:
                logger.warning("a graph runs as PyTorch runs it: its weights have changed")
                self._is_stale = True
            return self._eager(*inputs)
        return tuple(self._session([inputs[place] for place in self._free]))


def _unsupported(module: Any, inputs: Sequence[Any]) -> str:
    """Why a graph is left to PyTorch; "" if it is not."""
    import torch

    for place, value in enumerate(inputs):
        if not isinstance(value, torch.Tensor):
            return f"input {place} is a {type(value).__name__}: an extent is open (dynamic shapes)"
        if value.device.type != "cpu":
            return f"input {place} is on {value.device}: expected the CPU"
        if torch.is_grad_enabled() and value.requires_grad:
            return "gradients are asked for: call the module within torch.no_grad()"
    (output,) = (node for node in module.graph.nodes if node.op == "output")
    if not all(isinstance(each, torch.fx.Node) for each in output.args[0]):
        return "an output is no tensor"
    return ""


def _static_places(module: Any, inputs: Sequence[Any]) -> set[int]:
    """The inputs of a graph that are parameters or buffers of the module."""
    import torch

    found = set()
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    for place, (node, value) in enumerate(zip(placeholders, inputs, strict=True)):
        marks = node.meta.get("tensor_dict") or {}
        if isinstance(value, torch.nn.Parameter) or "_dynamo_static_input_type" in marks:
            found.add(place)
    return found


def _bound_module(module: Any, inputs: Sequence[Any], free: Sequence[int]) -> Any:
    """A module of the free inputs alone; the others are its buffers."""
    import torch

    class Bound(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.graph_module = module
            for place, value in enumerate(inputs):
                if place not in free:
                    self.register_buffer(f"static_{place}", value.detach())

        def forward(self, *given: Any) -> Any:
            values = dict(zip(free, given, strict=True))
            return self.graph_module(
                *(
                    values[place] if place in values else getattr(self, f"static_{place}")
                    for place in range(len(inputs))
                )
            )

    return Bound().eval()


def _changed(program: Any) -> str:
    """What a program changes, in words; "" for nothing."""
    # Exported programs keep the operators in place; decomposed ones list what they change.
    signature = program.run_decompositions({}).graph_signature
    names = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
    return ", ".join(names)


def _session(program: Any, free: Sequence[Any], options: Mapping[str, Any]) -> InferenceSession:
    """The session of a program: of the library on disk, or of one that is tuned now."""
    import torch

    settings = {"threads": torch.get_num_threads(), **options}
    secs = 60 * float(settings.pop("minutes", 0))
    library = _folder(program, settings) / "model.so"
    is_tuned = library.with_name("tuned_minutes.txt")
    done = float(is_tuned.read_text()) if is_tuned.exists() else -1.0
    if not library.exists() or done < secs / 60:
        given: dict[str, Any] = {"trials": 0, "time_budget_s": _FIRST_SECS}
        if secs:
            given = {"time_budget_s": secs}
        tune(program, work_dir=library.parent, progress=None, **given, **settings)
        is_tuned.write_text(f"{secs / 60}")
    return InferenceSession(library, threads=settings["threads"])


def _folder(program: Any, settings: Mapping[str, Any]) -> Path:
    """The directory of a program on disk, by its code, its weights, the CPU and the options."""
    import torch

    digest = hashlib.sha256(program.graph_module.code.encode())
    digest.update(f"{host_target()} {sorted(settings.items())}".encode())
    for name, value in sorted({**program.state_dict, **program.constants}.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().contiguous().flatten().view(torch.uint8).numpy())
    for node in program.graph_module.graph.nodes:
        if node.op == "placeholder" and (value := node.meta.get("val")) is not None:
            digest.update(f"{node.name} {value.dtype} {tuple(value.shape)}".encode())
    home = os.environ.get(CACHE) or Path.home() / ".cache" / "tvm_droplet_ms"
    return Path(home, "torch", digest.hexdigest()[:32])
