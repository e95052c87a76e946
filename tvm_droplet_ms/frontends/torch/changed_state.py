# SPDX-License-Identifier: Apache-2.0
"""Convert buffers and inputs that a module changes to inputs and outputs.

A compiled model has no state. TVM's importer drops writes to buffers and inputs
(``exported_program_translator.py``), so a counter would return the same number on each call.
"""

from typing import Any

from ...session.errors import ModelError
from ..imported import listed
from .open_extents import user_specs

_MOST_NAMES = 4
"""The maximum number of names in a message."""


def merge_aliases(torch: Any, program: Any) -> None:
    """Merge tensors that share the same memory, in place.

    The ``transformers`` library registers its cache as buffers, but writes it through other
    references. The export takes these for separate constants. PyTorch cannot decompose such a
    program.
    """
    held = _held(program)
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    firsts: dict[Any, Any] = {}
    merged = []
    # Buffers come before constants, and keep their names.
    for spec in program.graph_signature.input_specs:
        tensor = held.get(spec.target)
        if not isinstance(tensor, torch.Tensor) or not tensor.numel():
            continue
        key = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
        first = firsts.setdefault(key, spec)
        if first is not spec:
            nodes[spec.arg.name].replace_all_uses_with(nodes[first.arg.name])
            program.graph.erase_node(nodes[spec.arg.name])
            merged.append(spec)
    if merged:
        specs = program.graph_signature.input_specs
        specs[:] = [spec for spec in specs if spec not in merged]
        program.graph_module.recompile()


def _held(program: Any) -> dict[str, Any]:
    """Return the buffers, parameters and constants of a program by name."""
    return {**dict(program.named_buffers()), **program.state_dict, **program.constants}


def return_changes(torch: Any, program: Any) -> tuple[Any, list[str], list[str]]:
    """Export a decomposed program again, without mutations.

    A changed buffer becomes an input after the others. The new values of buffers and inputs become
    outputs after the others: first the values of buffers, in the order of the inputs. Returns the
    program, a sentence for the user, and the names of the inputs whose new values are the last
    outputs, in order. If nothing changes, returns the same program and empty lists. Raises
    ``ModelError`` if a program with changes has dynamic extents.
    """
    kinds = torch.export.graph_signature.OutputKind
    returned = (kinds.USER_OUTPUT, kinds.LOSS_OUTPUT)
    signature = program.graph_signature
    changed = [spec for spec in signature.output_specs if spec.kind not in returned]
    if not changed:
        return program, [], []
    names = _changed_names(torch, program)
    taken = user_specs(torch, program)
    buffers = [s for s in signature.input_specs if s not in taken and s.arg.name in names]
    named = listed([repr(spec.target) for spec in changed], _MOST_NAMES)
    noted = {node.name: node.meta.get("val") for node in program.graph.nodes}
    examples, fixed = {}, {}
    for spec in (*taken, *buffers):
        value = noted[spec.arg.name]
        if not isinstance(value, torch.Tensor):
            fixed[spec.arg.name] = getattr(spec.arg, "value", None)
        elif all(isinstance(extent, int) for extent in value.shape):
            examples[spec.arg.name] = torch.zeros(tuple(value.shape), dtype=value.dtype)
        else:
            raise ModelError(
                f"the module changes {named} and leaves extents open: export it with fixed "
                "extents, or return what it changes as outputs"
            )
    module = _functional(torch, program, set(examples), fixed, returned)
    with torch.no_grad():
        exported = torch.export.export(module, (), examples, strict=False)
    inputs = listed([spec.arg.name for spec in buffers], _MOST_NAMES)
    written = [spec.arg.name for spec in (*buffers, *taken) if spec.arg.name in names]
    as_inputs = f"its buffers are inputs behind the others ({inputs}), and " if inputs else ""
    note = (
        f"the module changes {named}: a compiled model has no state, so {as_inputs}the new values "
        "are outputs behind the others"
    )
    return exported, [note], written


def _changed_names(torch: Any, program: Any) -> dict[str, int]:
    """Return the output index of the new value of each changed input or buffer.

    The keys are node names: a buffer and an input may have the same name.
    """
    kinds, own = torch.export.graph_signature.OutputKind, user_specs(torch, program)
    specs = program.graph_signature.input_specs
    of_held = {spec.target: spec.arg.name for spec in specs if spec not in own}
    places = {}
    for place, spec in enumerate(program.graph_signature.output_specs):
        if spec.kind is kinds.USER_INPUT_MUTATION:
            places[spec.target] = place
        elif spec.kind not in (kinds.USER_OUTPUT, kinds.LOSS_OUTPUT):
            places[of_held[spec.target]] = place
    return places


def _functional(
    torch: Any, program: Any, given: set[str], fixed: dict[str, Any], returned: tuple[Any, ...]
) -> Any:
    """Return a module that runs a program on its inputs and buffers by name.

    ``given``: the names of the tensor inputs. ``fixed``: the values of the other inputs, by name.
    ``returned``: the kinds of outputs that come first.
    """
    inner, signature = program.graph_module, program.graph_signature
    held = _held(program)

    class Functional(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            for spec in signature.input_specs:
                if spec.arg.name not in given and spec.arg.name not in fixed:
                    self.register_buffer(spec.arg.name, held[spec.target].detach())

        def forward(self, **inputs: Any) -> Any:
            known = {**dict(self.named_buffers()), **fixed, **inputs}
            outputs = inner(*(known[spec.arg.name] for spec in signature.input_specs))
            specs = signature.output_specs
            first = [v for s, v in zip(specs, outputs, strict=True) if s.kind in returned]
            places, own = _changed_names(torch, program), user_specs(torch, program)
            # The new values of buffers come first, in the order of the inputs.
            order = sorted(signature.input_specs, key=lambda spec: spec in own)
            changed = [places[s.arg.name] for s in order if s.arg.name in places]
            return (*first, *(outputs[place] for place in changed))

    return Functional().eval()
