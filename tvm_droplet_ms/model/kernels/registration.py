# SPDX-License-Identifier: Apache-2.0
"""The parts of a pipeline that use the kernels: a map for ``LegalizeOps``, and schedule rules."""

from collections.abc import Callable
from typing import Any

from .channelwise import register_channelwise_rule
from .concatenation import legalize_concatenation, register_concatenation_rule
from .groups.grouped_convolution import legalize_convolution
from .groups.packed_groups_rule import register_packed_rule
from .pool_rules import register_pool_rules
from .staged_reduction import staged_reductions
from .vector_math import vector_math
from .winograd.winograd_rules import register_winograd_rules


def legalize_map() -> dict[str, Callable[..., Any]]:
    """The legalisations that replace TVM's on a CPU.

    By operator, for ``relax.transform.LegalizeOps(customize_legalize_map=...)``. Calls that a
    function has no better form for are legalised by TVM.
    """
    return {
        "relax.concat": legalize_concatenation,
        "relax.nn.conv2d": legalize_convolution,
        **staged_reductions(),
        **vector_math(),
    }


def register_schedule_rules() -> None:
    """Register the schedule rules that the kernels ask for.

    Call it before MetaSchedule generates design spaces. It may be called again.
    """
    register_pool_rules()
    register_concatenation_rule()
    register_channelwise_rule()
    register_packed_rule()
    register_winograd_rules()
