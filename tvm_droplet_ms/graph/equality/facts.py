# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""What an e-graph knows of its classes, and why it refuses terms. Imports no TVM."""

from collections.abc import Callable
from typing import NamedTuple

from .language import Operator, Type

Infer = Callable[[Operator, tuple[Type, ...]], Type | None]
"""Infers the type of a call from the types of its operands; None where the call is illegal."""


class NodeLimit(Exception):
    """The e-graph would have more e-nodes than its limit."""


class IllegalTerm(Exception):
    """A term has no type: its operator refuses the operands."""


class OtherType(IllegalTerm):
    """A term has another type than the class that it should be equal to."""


class Facts(NamedTuple):
    """What is known of the value of an e-class.

    Attributes
    ----------
    type : Type
        The type.
    weight_only : bool
        Whether some e-node of the class depends on weights alone.
    """

    type: Type
    weight_only: bool
