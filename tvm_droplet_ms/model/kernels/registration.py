# SPDX-License-Identifier: Apache-2.0
"""Registers the kernels in a pipeline: a map for ``LegalizeOps``, and schedule rules."""

from collections.abc import Callable
from typing import Any

from .attention.attention_compute import ATTENTION_RULE, TILED_RULE
from .attention.attention_schedule import schedule_attention, schedule_attention_in_tiles
from .attention.few_rows import FEW_ROWS_RULE, schedule_few_rows
from .byte_pads import legalize_pad
from .channelwise import CHANNELWISE_RULE, schedule_channelwise
from .concatenation import CONCATENATION_RULE, legalize_concatenation, schedule_concatenation
from .groups.grouped_convolution import legalize_convolution
from .groups.packed_groups import PACKED_RULE, schedule_packed
from .half_cast import legalize_cast
from .halves.half_matmul import legalize_matmul
from .halves.half_pool import legalize_max_pool
from .pool_rules import register_pool_rules, register_rule
from .staged_reduction import REDUCTIONS, legalize_reduction
from .vector_math import vector_math
from .weights.narrow_product import NARROW_RULE, schedule_narrow
from .winograd.strips import register_winograd_rules


def legalize_map() -> dict[str, Callable[..., Any]]:
    """Return the legalizations that replace TVM's on a CPU, by operator.

    The map is for ``relax.transform.LegalizeOps(customize_legalize_map=...)``. The functions leave
    calls to TVM if they have no better form.
    """
    return {
        "relax.astype": legalize_cast,
        "relax.concat": legalize_concatenation,
        "relax.matmul": legalize_matmul,
        "relax.nn.conv2d": legalize_convolution,
        "relax.nn.max_pool2d": legalize_max_pool,
        "relax.nn.pad": legalize_pad,
        **dict.fromkeys(REDUCTIONS, legalize_reduction),
        **vector_math(),
    }


def register_schedule_rules() -> None:
    """Register the schedule rules that the kernels request.

    Call it before MetaSchedule generates design spaces. Further calls have no effect.
    """
    register_pool_rules()
    register_rule(CONCATENATION_RULE, schedule_concatenation)
    register_rule(CHANNELWISE_RULE, schedule_channelwise)
    register_rule(PACKED_RULE, schedule_packed)
    register_rule(ATTENTION_RULE, schedule_attention)
    register_rule(TILED_RULE, schedule_attention_in_tiles)
    register_rule(FEW_ROWS_RULE, schedule_few_rows)
    register_rule(NARROW_RULE, schedule_narrow)
    register_winograd_rules()
