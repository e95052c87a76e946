# SPDX-License-Identifier: Apache-2.0
"""The parts of random graphs: choices, values and nodes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

T = TypeVar("T")

OPSET, IR_VERSION = 24, 10
RUNTIME = "com.microsoft"
"""The domain of ONNX Runtime's own operators."""

MOST_ELEMENTS = 12_000
"""The largest value of a graph: a naive kernel of it takes milliseconds."""


class Value(NamedTuple):
    """A float32 tensor of a graph."""

    name: str
    shape: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))


class GraphMaker:
    """A graph that grows; all choices follow from the seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.chooser = np.random.default_rng(self.integer(0, 2**16))
        self.inputs: list[Value] = []
        self.values: list[Value] = []
        self.used: set[str] = set()
        self._nodes: list[Any] = []
        self._infos: dict[str, Any] = {}
        self._initializers: list[Any] = []

    def integer(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def pick(self, options: Sequence[T]) -> T:
        return options[self.integer(0, len(options) - 1)]

    def chance(self, percent: int) -> bool:
        return self.integer(1, 100) <= percent

    def input(self, shape: tuple[int, ...]) -> Value:
        value = Value(f"in{len(self.inputs)}", shape)
        self.inputs.append(value)
        self.values.append(value)
        return value

    def weight(self, shape: Sequence[int], fan_in: int = 1) -> str:
        """Normally distributed weights, by which sums of `fan_in` products keep their scale."""
        array = self.chooser.standard_normal(tuple(shape)) / np.sqrt(fan_in)
        return self.constant(array.astype("float32"))

    def positive(self, shape: Sequence[int]) -> str:
        return self.constant(self.chooser.uniform(0.5, 1.5, tuple(shape)).astype("float32"))

    def booleans(self, shape: Sequence[int]) -> str:
        return self.constant(self.chooser.random(tuple(shape)) < 0.5)

    def constant(self, array: Any) -> str:
        name = f"w{len(self._initializers)}"
        self._initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def shape_of(self, weight: str) -> tuple[int, ...]:
        return tuple(next(each.dims for each in self._initializers if each.name == weight))

    def integers(self, values: Sequence[int]) -> str:
        return self.constant(np.array(values, "int64"))

    def node(
        self,
        kind: str,
        inputs: Sequence[str],
        shape: Sequence[int],
        *,
        dtype: int = TensorProto.FLOAT,
        outputs: int = 1,
        place: int = 0,
        others: bool = True,
        **attributes: Any,
    ) -> Value:
        """Add a node, and return one of its outputs, whose shape is known.

        ``dtype``: ONNX's number of its type. ``outputs``: how many there are. ``place``: which one
        is returned. ``others``: whether those behind the first have names too.
        """
        value = Value(f"v{len(self._nodes)}", tuple(int(extent) for extent in shape))
        names = [f"{value.name}_{n}" if others or not n else "" for n in range(outputs)]
        names[place] = value.name
        names = names[: place + 1] if not others else names
        self._nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        self._infos[value.name] = helper.make_tensor_value_info(value.name, dtype, value.shape)
        self.used.update(inputs)
        return value

    def attempt(self, step: Callable[[], Value | None]) -> None:
        """Take a step that may add nodes, unless its value is none or of an unwanted size."""
        count, used = len(self._nodes), set(self.used)
        value = step()
        if value is not None and 0 < value.size <= MOST_ELEMENTS and 1 <= value.rank <= 5:
            self.values.append(value)
        else:
            del self._nodes[count:]
            self.used = used

    @property
    def count(self) -> int:
        return len(self._nodes)

    def model(self) -> onnx.ModelProto:
        """The model; its outputs are the values that nothing reads."""
        outputs = [v for v in self.values if v.name not in self.used and v not in self.inputs]

        def info(value: Value) -> Any:
            return helper.make_tensor_value_info(value.name, TensorProto.FLOAT, value.shape)

        inputs = [value for value in self.inputs if value.name in self.used]
        graph = helper.make_graph(
            self._nodes,
            "random",
            [info(value) for value in inputs],
            [info(value) for value in outputs],
            self._initializers,
            value_info=[
                self._infos[name]
                for node in self._nodes
                for name in node.output
                if name in self._infos and all(name != value.name for value in outputs)
            ],
        )
        imports = [helper.make_opsetid("", OPSET), helper.make_opsetid(RUNTIME, 1)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION)
        onnx.checker.check_model(model)
        return onnx.shape_inference.infer_shapes(model, strict_mode=True)
