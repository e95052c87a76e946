# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests without a card: the stand-in driver, and an environment with it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent / "stand_in_driver"
NVCC = Path(__file__).parent / "stand_in_nvcc"
COMPILER = shutil.which("cc") or shutil.which("gcc")


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    """The folder of the stand-in's libraries."""
    if COMPILER is None:
        pytest.skip("there is no C compiler to make the stand-in driver with")
    folder = tmp_path_factory.mktemp("driver")
    versions = f"-Wl,--version-script={SOURCES / 'runtime.map'}"
    for name, options in (("libcudart.so.13", ["-DRUNTIME", versions]), ("libcuda.so.1", [])):
        command = [COMPILER, "-O1", "-Wall", "-Werror", "-shared", "-fPIC", *options]
        command += [f"-Wl,-soname,{name}", "-o", str(folder / name), str(SOURCES / "driver.c")]
        subprocess.run([*command, "-ldl"], check=True)
    return folder


@pytest.fixture(scope="session")
def environment(driver):
    """The environment of a process that finds the stand-in, and an nvcc that compiles nothing."""
    return os.environ | {
        "LD_LIBRARY_PATH": str(driver),
        "TVM_CUDA_COMPILE_MODE": "nvcc",
        "PATH": os.pathsep.join((str(NVCC), os.environ["PATH"])),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }


@pytest.fixture(scope="session")
def compiling(environment):
    """The same with the machine's nvcc, which takes seconds for a kernel."""
    if shutil.which("nvcc") is None:
        pytest.skip("there is no nvcc to compile kernels with")
    return environment | {"PATH": os.environ["PATH"]}
