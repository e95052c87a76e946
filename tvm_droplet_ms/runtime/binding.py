# SPDX-License-Identifier: Apache-2.0
"""Arrays that stay bound to a session between its runs. Imports no TVM."""

from typing import Any

import numpy as np


class IOBinding:
    """Arrays bound to a session's inputs and outputs; ``session.io_binding()`` makes one."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.inputs: dict[str, Any] = {}
        self.targets: dict[str, np.ndarray] = {}
        self.outputs: list[Any] = []

    def bind_cpu_input(self, name: str, value: Any) -> None:
        """Bind an array or a tensor: each run reads what is in it then."""
        self.inputs[name] = value

    def bind_output(self, name: str, array: np.ndarray | str | None = None) -> None:
        """Bind an output; ``array``: where to write it. A device's name is accepted and ignored.

        Raises ``SessionError`` for an unknown name, or an array of another type or shape.
        """
        self._session.check_output(name, array)
        if isinstance(array, np.ndarray):
            self.targets[name] = array

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The outputs of the last run, in order, as arrays."""
        return list(self.outputs)
