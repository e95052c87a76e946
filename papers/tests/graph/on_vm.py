# SPDX-License-Identifier: Apache-2.0
"""Terms of the e-graph's language as Relax functions, run on the virtual machine."""

import tvm
from tvm import relax
from tvm_droplet_papers.graph.interpreter import evaluate
from tvm_droplet_papers.graph.relax.operators import write_call
from tvm_droplet_papers.graph.relax.types import relax_type


def function_of(term, parameters):
    """A Relax function of a term; `parameters` has the leaves that are its parameters."""
    builder = relax.BlockBuilder()
    variables = {leaf: relax.Var(f"p{i}", relax_type(t)) for i, (leaf, t) in enumerate(parameters)}
    done = {}

    def visit(part):
        if part.operator in variables:
            return variables[part.operator]
        if id(part) not in done:
            if part.operator.name in ("eye", "full"):
                done[id(part)] = relax.const(evaluate(part.operator, []))
            else:
                call = write_call(part.operator, [visit(child) for child in part.children])
                done[id(part)] = builder.emit(call)
        return done[id(part)]

    with builder.function("main", list(variables.values())):
        with builder.dataflow():
            output = builder.emit_output(visit(term))
        builder.emit_func_output(output)
    return builder.get()["main"]


class Machine:
    """Functions that are compiled together and run one by one."""

    def __init__(self, functions):
        named = {name: func.with_attr("global_symbol", name) for name, func in functions.items()}
        executable = relax.build(
            relax.get_pipeline("zero")(tvm.IRModule(named)), tvm.target.Target("llvm")
        )
        self.machine = relax.VirtualMachine(executable, tvm.cpu())

    def run(self, name, arrays):
        result = self.machine[name](*map(tvm.runtime.tensor, arrays))
        if isinstance(result, tvm.runtime.Tensor):
            return result.numpy()
        return tuple(each.numpy() for each in result)
