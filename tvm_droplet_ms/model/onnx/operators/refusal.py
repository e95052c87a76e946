# SPDX-License-Identifier: Apache-2.0
"""The errors of converters."""


class UnsupportedNode(ValueError):
    """A node cannot be converted.

    A converter says what is the matter with it ("its direction is 'x'"); the importer puts the
    node's name and operator in front.
    """
