# SPDX-License-Identifier: Apache-2.0
"""All converters of this package: its modules fill the registry when they are imported."""

from . import arithmetic, detection, pooling, quantized, resize, shapes, signal
from .classical import DOMAIN as CLASSICAL
from .classical import scores, trees, vectors
from .contrib import DOMAIN as CONTRIB
from .contrib import attention, fused, grouped_attention, packed_weights
from .recurrence import converters

OTHER_DOMAINS = (CLASSICAL, CONTRIB)
"""The domains of supported operators that are not ONNX's standard ones."""

MODULES = (
    *(arithmetic, detection, pooling, quantized, resize, shapes, signal),
    *(scores, trees, vectors, attention, fused, grouped_attention, packed_weights, converters),
)
