# SPDX-License-Identifier: Apache-2.0
"""Results of child processes, stored as one JSON file each. Imports no TVM.

``ResultStore.get`` reads a finished result, or starts a module of this package to make it. The
module calls ``serve`` with the function that does the work.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tvm_droplet_ms.bench.source_digest import TUNING, source_digest
from tvm_droplet_ms.session.archive import replacing

_CHILD = "--child"


class ResultError(Exception):
    """A stored result cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class ResultStore:
    """A directory of results."""

    directory: Path
    read_only: bool = False
    accept_other_source: bool = False
    folders: tuple[str, ...] = TUNING

    def get(self, name: str, module: str, settings: dict[str, Any]) -> dict[str, Any] | None:
        """Read a result, or make it in a separate process.

        ``name``: the name of the file, without its suffix. ``module``: the module of this folder
        that makes the result. ``settings``: the settings of the task, as JSON-compatible values.
        Returns the child's result with ``settings``, ``source``, ``finished`` (``time.time()``) and
        ``process_secs``, the seconds of its process; None if there is no result. Raises
        ``ResultError`` if the stored result has other settings or comes from other code.
        """
        path = self.directory / f"{name}.json"
        done = self._read(path, settings)
        if done is not None or self.read_only:
            return done
        return self._make(path, f"{__package__}.{module}", settings)

    def _read(self, path: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
        if not path.exists():
            return None
        result: dict[str, Any] = json.loads(path.read_text())
        if result["settings"] != settings:
            raise ResultError(
                f"{path} was made with the settings {result['settings']}, expected {settings}: "
                "give the same options again, or another --out"
            )
        source = source_digest(self.folders)
        if result["source"] != source and not self.accept_other_source:
            raise ResultError(
                f"{path} was made by code with digest {result['source']}, and the code of the "
                f"package now has {source}: give another --out, or --accept-other-source "
                "to use the results all the same"
            )
        return result

    def _make(self, path: Path, module: str, settings: dict[str, Any]) -> dict[str, Any] | None:
        path.parent.mkdir(parents=True, exist_ok=True)
        written, log = path.with_suffix(".written"), path.with_suffix(".log")
        print(f"{time.strftime('%H:%M:%S')} {path.stem} ...", end=" ", flush=True)
        started = time.monotonic()
        task = {"settings": settings, "out": str(self.directory)}
        command = [sys.executable, "-m", module, _CHILD, str(written)]
        with log.open("w") as output:
            status = _run_group([*command, json.dumps(task)], output)
        secs = time.monotonic() - started
        if status != 0:
            last = (log.read_text().strip().splitlines() or ["it printed nothing"])[-1]
            print(f"FAILED with exit status {status}, see {log}: {last}", flush=True)
            return None
        result = {
            **json.loads(written.read_text()),
            "settings": settings,
            "source": source_digest(self.folders),
            "finished": time.time(),
            "process_secs": secs,
        }
        with replacing(path) as partial:
            partial.write_text(json.dumps(result))
        written.unlink()
        print(f"{secs:.0f} s", flush=True)
        return result


def _run_group(command: list[str], output: Any) -> int:
    """Run a program. If this process is stopped meanwhile, kill the program's process group.

    Orphaned workers of TVM's pools hold each other's pipes open and never end.
    """
    process = subprocess.Popen(
        command, start_new_session=True, stdout=output, stderr=subprocess.STDOUT
    )
    try:
        return process.wait()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise


@dataclass(frozen=True)
class Task:
    """The work of a child process."""

    settings: dict[str, Any]
    out: Path


def serve(work: Callable[[Task], dict[str, Any]]) -> None:
    """Do the task of this child process.

    Raises ``SystemExit`` if the module was not started by ``ResultStore.get``.
    """
    if len(sys.argv) != 4 or sys.argv[1] != _CHILD:
        raise SystemExit("this module is started by the other commands of the folder, not by hand")
    content = json.loads(sys.argv[3])
    result = work(Task(content["settings"], Path(content["out"])))
    Path(sys.argv[2]).write_text(json.dumps(result))


def environment() -> str:
    """The machine and the versions that a result depends on, in one line."""
    from tvm_droplet_ms.host import host_target, tvm_num_threads

    return (
        f"{host_target().attrs['mcpu']}, {os.cpu_count()} CPUs, {tvm_num_threads()} thread(s) in "
        f"a kernel, apache-tvm {version('apache-tvm')}, apache-tvm-ffi "
        f"{version('apache-tvm-ffi')}"
    )


def make_parser(doc: str, out: str, files: Sequence[str] = ()) -> ArgumentParser:
    """A parser with the options that all commands with stored results share.

    ``doc``: the docstring of the command's module; its first paragraph is the description. ``out``:
    the default of ``--out``. ``files``: options for files that replace the shipped ones.
    """
    # Turn SIGTERM into an exception, so that _run_group kills the child.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    parser = ArgumentParser(
        description=doc.split("\n\n")[0], formatter_class=ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path(out), help="directory of the results")
    parser.add_argument("--report", action="store_true", help="measure nothing, print the tables")
    parser.add_argument(
        "--accept-other-source",
        action="store_true",
        help="use finished results although the code of the package has changed since",
    )
    for name in files:
        text = f"{name} that has learned from other workloads (default: that of the package)"
        parser.add_argument(f"--{name}", metavar="FILE", help=text)
    return parser


def given_files(args: argparse.Namespace) -> dict[str, str]:
    """The absolute paths of the given files, by the names of the options."""
    given = {name: vars(args).get(name) for name in ("prior", "known", "draft")}
    return {name: str(Path(path).resolve()) for name, path in given.items() if path}


def make_store(args: argparse.Namespace, folders: tuple[str, ...] = TUNING) -> ResultStore:
    """The store that the options of ``make_parser`` describe."""
    return ResultStore(args.out, args.report, args.accept_other_source, folders)
