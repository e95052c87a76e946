# SPDX-License-Identifier: Apache-2.0
"""The errors of converters."""


class UnsupportedNode(ValueError):
    """A node cannot be converted.

    A converter says what is the matter with it ("its direction is 'x'"); the importer puts the
    node's name and operator in front.
    """


class UnknownExtent(UnsupportedNode):
    """An extent is not known before the model runs: it depends on the values of some tensors.

    Parameters
    ----------
    message : str
        What is the matter.
    index : int | None
        The input of the node whose values decide it. None for any of them.
    values : tuple[str, ...]
        The names of the values in the graph that decide it, which the importer fills in.
    """

    def __init__(
        self, message: str, index: int | None = None, values: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.index = index
        self.values = values


class WrongExtent(UnsupportedNode):
    """Extents do not fit each other."""
