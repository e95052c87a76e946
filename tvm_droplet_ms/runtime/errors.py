# SPDX-License-Identifier: Apache-2.0
"""The error of running tuned models. Imports no TVM."""


class SessionError(ValueError):
    """A library cannot be loaded or run. The message names what is wrong and what was expected."""
