# SPDX-License-Identifier: Apache-2.0
"""The error of ``tune``."""


class ModelError(ValueError):
    """The argument cannot be tuned. The message names it and says what to pass."""


class TooLateError(ModelError):
    """The time was too short for an executable."""
