# SPDX-License-Identifier: Apache-2.0
"""The backend of ``torch.compile(module, backend="droplet")``.

TorchDynamo finds it by the entry point ``torch_dynamo_backends`` of this package. A graph that it
hands over is exported with its weights bound, tuned as ``tune`` does, and kept on disk.
"""

import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from ..compat.versions import package_version
from ..host import host_target
from ..runtime import InferenceSession, SessionError
from ..session.archive import replacing
from ..session.errors import ModelError, first_line
from .tuner import tune

logger = logging.getLogger(__name__)

CACHE = "TVM_DROPLET_MS_CACHE"
"""The environment variable with the directory of compiled graphs."""

_EAGER = "a graph runs as PyTorch runs it"
"""The beginning of a warning."""

_FIRST_SECS = 30.0
"""The time limit of first picks, in seconds."""

_MOST_SETS = 256
"""The maximum number of sets of weights for which one graph is compiled."""

_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "tvm-droplet-ms")

_OPTIONS = ("minutes", "threads", "tolerance", "precision", "exact")


def droplet(
    module: Any,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile a graph of TorchDynamo for this machine's CPU.

    The weights are those of the first call of each module; a change by PyTorch's operators is
    noticed, one through ``.data`` is not. A graph that cannot be compiled runs as PyTorch runs
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
    minutes = chosen.get("minutes", 0)
    if isinstance(minutes, bool) or not isinstance(minutes, int | float) or not 0 <= minutes < 1e6:
        raise ValueError(f"options={{'minutes': {minutes!r}}}: expected a number of at least 0")
    reason = _unsupported(module, example_inputs)
    if not reason:
        try:
            return _Graph(module, example_inputs, chosen)
        # PyTorch's exporter raises many classes for graphs that it cannot export.
        except Exception as error:
            reason = _reason(error)
            if reason.startswith(tuple(f"{name}=" for name in chosen)):
                raise ValueError(f"options: {reason}") from error
    logger.warning("%s: %s", _EAGER, reason)
    run: Callable[..., Any] = module.forward
    return run


def _reason(error: Exception) -> str:
    known = isinstance(error, ModelError | SessionError)
    return str(error) if known else f"{type(error).__name__}: {first_line(error)}"


class _Graph:
    """A graph of TorchDynamo, called with all its inputs: a library for each set of weights.

    TorchDynamo runs one graph for all modules of a class, with the weights of each.
    """

    def __init__(self, module: Any, inputs: Sequence[Any], options: Mapping[str, Any]) -> None:
        self._module, self._options = module, options
        static = _static_places(module, inputs)
        self._static = sorted(static)
        self._free = [place for place in range(len(inputs)) if place not in static]
        self._bound: dict[tuple[int, ...], _Bound | None] = {}
        self._last: _Bound | None = None
        self._compile(inputs)

    def __call__(self, *inputs: Any) -> Any:
        last = self._last
        if last is not None and last.holds(inputs):
            return self._run(last, inputs)
        static = [inputs[place] for place in self._static]
        key = tuple(map(id, static))
        if key not in self._bound and len(self._bound) == _MOST_SETS:
            return self._module.forward(*inputs)
        if key not in self._bound:
            try:
                self._compile(inputs)
            except Exception as error:  # As in ``droplet``.
                self._refuse(key, _reason(error))
        bound = self._bound[key]
        if bound is not None and not bound.holds(inputs):
            self._refuse(key, "its weights have changed")
            bound = None
        if bound is None:
            return self._module.forward(*inputs)
        self._last = bound
        return self._run(bound, inputs)

    def _run(self, bound: "_Bound", inputs: Sequence[Any]) -> Any:
        try:
            return bound.run([inputs[place] for place in self._free])
        except SessionError as error:
            self._refuse(tuple([id(inputs[place]) for place in self._static]), str(error))
            return self._module.forward(*inputs)

    def _refuse(self, key: tuple[int, ...], reason: str) -> None:
        logger.warning("%s: %s", _EAGER, reason)
        self._bound[key] = self._last = None

    def _compile(self, inputs: Sequence[Any]) -> None:
        import torch

        free = [inputs[place] for place in self._free]
        bound = _bound_module(self._module, inputs, self._free)
        with torch.no_grad():
            program = torch.export.export(bound, tuple(free), strict=False)
            program = program.run_decompositions(_decompositions())
        if changed := _changed(program):
            raise ModelError(f"it changes {changed}")
        session = _session(program, self._options)
        strides = _output_strides(program)
        static = {place: inputs[place] for place in self._static}
        self._bound[tuple(map(id, static.values()))] = _Bound(session, static, strides)


class _Bound:
    """The library of a graph with one set of weights."""

    def __init__(
        self,
        session: InferenceSession,
        static: Mapping[int, Any],
        strides: Sequence[tuple[int, ...]],
    ) -> None:
        self._session, self._strides = session, strides
        # The tensors are kept, so that no other gets their identity, and their memory, so that no
        # other gets its address.
        self._memory = [each.detach() for each in static.values()]
        self._static = [
            (place, each, each._version, each.data_ptr()) for place, each in static.items()
        ]

    def holds(self, inputs: Sequence[Any]) -> bool:
        """Return whether the weights among a graph's inputs are the library's, unchanged since."""
        for place, kept, version, address in self._static:
            value = inputs[place]
            if value is not kept or value._version != version or value.data_ptr() != address:
                return False
        return True

    def run(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Run the library; its outputs as PyTorch's tensors."""
        found = []
        for each, strides in zip(self._session(inputs), self._strides, strict=True):
            output = _tensor(each) if isinstance(each, np.ndarray) else each
            found.append(output if output.stride() == strides else _strided(output, strides))
        return tuple(found)


def _tensor(array: np.ndarray) -> Any:
    import torch

    return torch.from_numpy(array)


def _strided(tensor: Any, strides: tuple[int, ...]) -> Any:
    """A copy with the strides of eager PyTorch: the caller may take another view."""
    import torch

    pairs = zip(tensor.shape, strides, strict=True)
    reach = 1 + sum((extent - 1) * stride for extent, stride in pairs)
    if 0 not in strides and reach >= tensor.numel():
        return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype).copy_(tensor)
    # Numbers share memory, as in an expanded tensor: PyTorch copies to no such tensor.
    memory = torch.empty(max(reach, 0), dtype=tensor.dtype)
    memory[torch.arange(len(memory)).as_strided(tensor.shape, strides)] = tensor
    return memory.as_strided(tensor.shape, strides)


def _unsupported(module: Any, inputs: Sequence[Any]) -> str:
    """Why a graph is left to PyTorch; "" if it is not."""
    import torch

    for place, value in enumerate(inputs):
        if not isinstance(value, torch.Tensor):
            return (
                f"input {place} is a {type(value).__name__}: an extent is open (dynamic shapes), "
                "as after a call with another shape; torch.compile(..., dynamic=False) compiles "
                "each shape"
            )
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


def _decompositions() -> dict[Any, Callable[..., Any]]:
    """What PyTorch's fused operators, which TVM's importer lacks, do in terms of plain ones."""
    import torch

    fused = torch.ops.aten._transformer_encoder_layer_fwd.default
    return {fused: _encoder_layer}


def _encoder_layer(
    src: Any,
    width: int,
    heads: int,
    *rest: Any,
    mask: Any = None,
    mask_type: int | None = None,
) -> Any:
    """The operator that ``nn.TransformerEncoderLayer`` calls in ``eval`` mode, without a mask.

    ``rest``: the weights of attention, the options, and the other weights.
    """
    import torch
    from torch.nn import functional

    qkv_weight, qkv_bias, weight, bias, is_gelu, norm_first, eps, *others = rest
    norms, (up, up_bias, down, down_bias, *masks) = (others[:2], others[2:4]), others[4:]
    if mask is not None or mask_type is not None or any(each is not None for each in masks):
        return NotImplemented
    activation = functional.gelu if is_gelu else functional.relu

    def attend(x: Any) -> Any:
        parts = functional.linear(x, qkv_weight, qkv_bias).chunk(3, -1)
        query, key, value = (
            part.unflatten(-1, (heads, width // heads)).transpose(1, 2) for part in parts
        )
        found = functional.scaled_dot_product_attention(query, key, value)
        # A copy: whether a view is possible depends on the implementation of attention.
        joined = found.transpose(1, 2).clone(memory_format=torch.contiguous_format).flatten(2)
        return functional.linear(joined, weight, bias)

    def feed(x: Any) -> Any:
        return functional.linear(activation(functional.linear(x, up, up_bias)), down, down_bias)

    for branch, (scale, shift) in zip((attend, feed), norms, strict=True):
        if norm_first:
            src = src + branch(functional.layer_norm(src, (width,), scale, shift, eps))
        else:
            src = functional.layer_norm(src + branch(src), (width,), scale, shift, eps)
    return src


def _output_strides(program: Any) -> list[tuple[int, ...]]:
    """The strides of a program's outputs in eager PyTorch."""
    (output,) = (node for node in program.graph.nodes if node.op == "output")
    return [tuple(map(int, node.meta["val"].stride())) for node in output.args[0]]


def _changed(program: Any) -> str:
    """What a decomposed program changes, in words; "" for nothing."""
    signature = program.graph_signature
    names = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
    return ", ".join(names)


def _session(program: Any, options: Mapping[str, Any]) -> InferenceSession:
    """The session of a program: of the library on disk, or of one that is tuned now."""
    import torch

    settings = {"threads": torch.get_num_threads(), **options}
    minutes = float(settings.pop("minutes", 0))
    folder = _folder(program, settings)
    folder.mkdir(parents=True, exist_ok=True)
    library, tuned = folder / "model.so", folder / "tuned_minutes.json"
    # Other processes that compile the same graph wait, and read the library.
    with FileLock(folder / "compile.lock"):
        if not library.exists() or _minutes(tuned) < minutes:
            given: dict[str, Any] = {"trials": 0, "time_budget_s": _FIRST_SECS}
            if minutes:
                given = {"time_budget_s": 60 * minutes}
            result = tune(program, work_dir=folder, progress=None, **given, **settings)
            if result.why_ended == "interrupt":
                raise KeyboardInterrupt
            with replacing(tuned) as partial:
                partial.write_text(json.dumps(minutes))
    return InferenceSession(library, threads=settings["threads"])


def _minutes(path: Path) -> float:
    """How long a library was tuned; -1 if that is not known."""
    try:
        return float(json.loads(path.read_text()))
    except (OSError, TypeError, ValueError):
        return -1.0


def _folder(program: Any, settings: Mapping[str, Any]) -> Path:
    """The directory of a program on disk: by its code, weights, types, CPU, options, versions."""
    import torch

    versions = [package_version(name) for name in _PACKAGES]
    digest = hashlib.sha256(
        f"{host_target()} {sorted(settings.items())} {versions} {torch.__version__}".encode()
    )
    for module in program.graph_module.modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        digest.update(module.code.encode())
        for node in module.graph.nodes:
            for value in torch.utils._pytree.tree_leaves(node.meta.get("val")):
                if isinstance(value, torch.Tensor):
                    digest.update(f"{node.name} {value.dtype} {tuple(value.shape)}".encode())
    for name, value in sorted({**program.state_dict, **program.constants}.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().contiguous().flatten().view(torch.uint8).numpy())
    home = os.environ.get(CACHE) or Path.home() / ".cache" / "tvm_droplet_ms"
    return Path(home, "torch", digest.hexdigest()[:32])
