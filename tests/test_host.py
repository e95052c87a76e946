# SPDX-License-Identifier: Apache-2.0
"""Target, threads, BLAS rate and bandwidth of the host."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
import threadpoolctl

from tvm.target import Target
from tvm.target.codegen import llvm_get_cpu_features
from tvm_droplet_ms import host
from tvm_droplet_ms.measure import fast_measure
from tvm_droplet_ms.session.errors import ModelError
from tvm_droplet_ms.session.target import cpu_target, kernel_target


def test_host_target_has_cpu_and_cores() -> None:
    target = host.host_target()
    assert target.kind.name == "llvm"
    assert target.attrs["mcpu"]
    assert int(target.attrs["num-cores"]) == (psutil.cpu_count(logical=False) or 1)


@pytest.mark.parametrize(
    ("hidden", "turned_off"),
    [
        ((), []),
        (("avx512f", "avx512vl", "avx512bf16", "avx512vnni"), ["-avx512f"]),
        (("avx512bf16",), ["-avx512bf16"]),
        (("gfni", "avx512f", "mwaitx"), ["-avx512f", "-gfni"]),
        (("fma", "avx2", "avx"), ["-avx"]),
    ],
)
def test_extensions_that_the_machine_hides_are_turned_off(
    hidden: tuple[str, ...], turned_off: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A virtual machine offers less than LLVM expects by the CPU's name; znver4 has AVX-512."""
    features = dict.fromkeys(hidden, False) | {"sse2": True}
    named = Target({**dict(Target.from_device("cpu").export()), "mcpu": "znver4"})
    target = host.offered_by(features, named)
    assert [str(name) for name in target.attrs.get("mattr", [])] == turned_off
    assert host.missing_extensions(features, target) == []
    kept = {str(name) for name in llvm_get_cpu_features(target)}
    assert not kept & (set(hidden) - {"mwaitx"})
    kept_off = host.offered_by(features, Target({**named.export(), "mattr": ["-avx512vbmi"]}))
    assert [str(name) for name in kept_off.attrs["mattr"]] == ["-avx512vbmi", *turned_off]
    monkeypatch.setattr(host, "host_features", lambda: features)
    if turned_off:
        name = turned_off[0][1:]
        with pytest.raises(ModelError, match=rf"has {name}, which this machine does not offer"):
            cpu_target(named, 1)
        with pytest.raises(ValueError, match=rf"has {name}, .* expected .*host_target\(\), which"):
            fast_measure(named)
        assert kernel_target(named, 1, here=False).attrs["mcpu"] == "znver4"
        named = target
    assert cpu_target(named, 1).attrs["mcpu"] == "znver4"


def test_extensions_that_the_name_leaves_out_are_turned_on() -> None:
    """A virtual machine reports an older model: Sapphire Rapids as LLVM's rocketlake."""
    named = Target({"kind": "llvm", "mcpu": "rocketlake"})
    features = {str(name): True for name in llvm_get_cpu_features(named)}
    assert host.offered_by(features, named).export() == named.export()
    tiles = ("amx-tile", "amx-int8", "amx-bf16")
    features |= dict.fromkeys((*tiles, "avx512bf16", "avxvnni", "cldemote"), True)
    target = host.offered_by(features, named)
    added = ["+avxvnni", "+avx512bf16", *(f"+{name}" for name in tiles)]
    assert [str(name) for name in target.attrs["mattr"]] == added
    assert host.missing_extensions(features, target) == []
    features["gfni"] = False
    both = host.offered_by(features, named)
    assert [str(name) for name in both.attrs["mattr"]] == [*added, "-gfni"]
    sapphire = Target({"kind": "llvm", "mcpu": "sapphirerapids"})
    assert not any(
        str(name).startswith("+") for name in host.offered_by(features, sapphire).attrs["mattr"]
    )


def test_tiles_that_linux_refuses_are_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request fails on old systems, and where a thread's signal stack is too small."""
    found = {"amx-tile": True, "amx-int8": True, "avx2": True}
    monkeypatch.setattr(host.tvm_ffi, "get_global_func", lambda *_, **__: lambda: found)
    monkeypatch.setattr(host, "allows_tiles", lambda: True)
    assert host.host_features() == found
    monkeypatch.setattr(host, "allows_tiles", lambda: False)
    assert host.host_features() == {"amx-tile": False, "amx-int8": False, "avx2": True}
    monkeypatch.setattr(host.Path, "read_text", lambda _: "flags : avx2 amx_tile amx_int8")
    assert "which Linux refuses" in (host.tiles_note() or "")
    monkeypatch.setattr(host.Path, "read_text", lambda _: "flags : avx2 fma")
    assert host.tiles_note() is None


def test_the_host_has_what_its_target_has() -> None:
    """Linux tells the same in its own words."""
    path = Path("/proc/cpuinfo")
    flags = path.read_text().split() if path.exists() else []
    if "avx2" not in flags:
        pytest.skip("no x86 on Linux")
    features = {str(name) for name in llvm_get_cpu_features(host.host_target())}
    for name in ("avx2", "fma", "avx512f", "avx512bw", "vaes", "gfni"):
        assert (name in features) <= (name in flags)
    assert ("avx512f" in features) == ("avx512f" in flags)
    for name, flag in (("amx-tile", "amx_tile"), ("avx512bf16", "avx512_bf16")):
        assert (name in features) == (flag in flags) or not host.allows_tiles()


@pytest.mark.parametrize("num_threads", [1, 2])
def test_num_threads_follows_the_environment(num_threads: int) -> None:
    # The runtime reads the environment once, so this needs its own process.
    program = "from tvm_droplet_ms.host import tvm_num_threads; print(tvm_num_threads())"
    environment = {**os.environ, "TVM_NUM_THREADS": str(num_threads)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == min(num_threads, os.cpu_count() or 1)


def test_asking_for_the_threads_leaves_the_process_its_cpus() -> None:
    """TVM's pool binds the thread that starts it."""
    program = (
        "import os; from tvm_droplet_ms.host import tvm_num_threads; "
        "before = os.sched_getaffinity(0); tvm_num_threads(); "
        "assert os.sched_getaffinity(0) == before, os.sched_getaffinity(0)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TVM_BIND_THREADS"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


def test_blas_rate_uses_fastest_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each multiplication reads the clock before and after: it takes 4, then 1, then 2 seconds.
    clock = iter([0.0, 4.0, 10.0, 11.0, 20.0, 22.0])
    monkeypatch.setattr(host.time, "perf_counter", lambda: next(clock))
    assert host.blas_gflops(1, size=100, repeats=3) == pytest.approx(2e6 / 1.0 / 1e9)


def test_blas_uses_requested_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    matmul = np.matmul

    def spy(*args: object, **kwargs: object) -> object:
        pools = threadpoolctl.threadpool_info()
        seen.extend(pool["num_threads"] for pool in pools if pool["user_api"] == "blas")
        return matmul(*args, **kwargs)

    monkeypatch.setattr(host.np, "matmul", spy)
    assert host.blas_gflops(1, size=64, repeats=2) > 0
    assert seen and set(seen) == {1}


def test_unlimitable_blas_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host.threadpoolctl, "threadpool_info", lambda: [])
    with pytest.raises(RuntimeError, match="cannot be limited to 2 threads"):
        host.blas_gflops(2, size=8, repeats=1)


def test_bandwidth_is_that_of_the_fastest_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    # Three copies of 400 bytes to 400 bytes take 4, 1 and 2 seconds.
    clock = iter([0.0, 4.0, 10.0, 11.0, 20.0, 22.0])
    monkeypatch.setattr(host.time, "perf_counter", lambda: next(clock))
    assert host.copy_bandwidth(800) == pytest.approx(800 / 1.0)


def test_copies_start_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    copyto = np.copyto

    def spy(destination: np.ndarray, source: np.ndarray) -> None:
        seen.extend(array.ctypes.data % 4096 for array in (destination, source))
        copyto(destination, source)

    monkeypatch.setattr(host.np, "copyto", spy)
    for size in (8, 10_000, 256 << 10):
        assert np.isfinite(host.copy_bandwidth(size))
    assert seen and set(seen) == {0}


def test_a_copy_within_l2_is_faster_than_one_from_memory() -> None:
    # In turns, since another process may slow either.
    turns = [[host.copy_bandwidth(size) for size in (256 << 10, 256 << 20)] for _ in range(3)]
    within, beyond = (max(turn) for turn in zip(*turns, strict=True))
    assert within > 1.2 * beyond
