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
"""Fixtures for all tests."""

import logging
import os

import pytest

# TVM binds the threads of every process to the first CPUs: two test runs would share one of them.
os.environ.setdefault("TVM_BIND_THREADS", "0")
# Two test processes share the CPUs: threads of OpenMP that only wait are not to take them.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@pytest.fixture(autouse=True)
def loggers_that_tvm_accepts():
    """Keep TVM's logger propagating; TVM switches that off in its first tuning run.

    pytest adds an unnamed handler to a logger that does not propagate, and TVM's next tuning run
    fails on such a handler. After the test, since pytest adds them before the next one's fixtures.
    """
    logger = logging.getLogger("tvm.s_tir.meta_schedule")
    logger.propagate = True
    yield
    logger.propagate = True
