# SPDX-License-Identifier: Apache-2.0
"""Examines the directory of a run: its lock, its lines, its target."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ...session.one_writer import SecondWriterError, only_writer
from ...session.records import RECORDS, WORKLOADS, count_records, mend_torn_end, torn_ends
from .finding import Finding
from .gpu import gpu_target
from .machine import free_space, why_no_tvm


def examine_work_dir(
    work_dir: str | os.PathLike[str], *, repair: bool = False
) -> Iterator[Finding]:
    """Examine the directory of a run, and yield a finding per subject.

    ``repair``: True to cut off torn last lines and move damaged records to a separate file, if no
    other process tunes in the directory.
    """
    directory = Path(work_dir)
    if not directory.is_dir():
        text = f"{directory} is no directory"
        yield Finding("work directory", "fault", text, "name that of a run")
        return
    yield free_space(directory, "work directory")
    with _writing(directory, repair=repair) as writer:
        repair = repair and writer.state == "ok"
        # Collect all findings before yielding, because the consumer may be slow and the directory
        # is locked meanwhile.
        found = [
            writer,
            _looked("last lines", lambda: _lines(directory, repair=repair)),
            _looked_with_tvm("database", lambda: _database(directory, repair=repair)),
            _looked_with_tvm("target", lambda: _target(directory)),
        ]
    yield from found


@contextmanager
def _writing(directory: Path, *, repair: bool) -> Iterator[Finding]:
    """Check whether another process tunes in the directory; for a repair, keep it locked."""
    with ExitStack() as held:
        try:
            held.enter_context(only_writer(directory))
            finding = Finding("writer", "ok", "no process tunes in it")
        except SecondWriterError:
            text = "a process tunes in it now"
            finding = Finding("writer", "warning", text, "wait for it before anything else")
        except OSError as error:  # Includes a read-only file system.
            text = f"it cannot be written: {error}"
            finding = Finding("writer", "fault", text, "permit writing, or copy it")
        if not repair:
            held.close()
        yield finding


def _looked(subject: str, look: Callable[[], Finding]) -> Finding:
    """Run a check of files; an ``OSError`` becomes a fault."""
    try:
        return look()
    except OSError as error:
        return Finding(subject, "fault", f"{error}", "permit reading and writing, or copy it")


def _looked_with_tvm(subject: str, look: Callable[[], Finding]) -> Finding:
    """Run a check that needs TVM; a warning if TVM cannot be imported."""
    if why_no_tvm():
        text = "not looked at, because TVM cannot be imported"
        return Finding(subject, "warning", text, "mend that first: see versions")
    return _looked(subject, look)


def _lines(directory: Path, *, repair: bool) -> Finding:
    torn = torn_ends(directory)
    if not torn:
        return Finding("last lines", "ok", "whole")
    names = ", ".join(torn)
    if repair:
        mend_torn_end(directory)
        return Finding("last lines", "ok", f"{names}: mended")
    text = f"torn in {names}, as a killed run or a full disk leaves them"
    advice = "tuning in the directory mends them, and so does droplet-ms doctor --repair"
    return Finding("last lines", "warning", text, advice)


def _database(directory: Path, *, repair: bool) -> Finding:
    from ...search_strategy.candidates import is_unmeasured
    from ...search_strategy.published.candidates import valid_secs
    from ...session.database import open_database, set_faulty_records_aside

    count = count_records(directory)
    if not (directory / WORKLOADS).exists() and not count:
        return Finding("database", "ok", "none yet")
    if count and not repair and not _is_filled(directory / WORKLOADS):
        text = f"{count} records, and {WORKLOADS}, which says what they measured, is lost"
        advice = f"copy it back, or move {RECORDS} away with droplet-ms doctor --repair"
        return Finding("database", "fault", text, advice)
    if torn_ends(directory):
        text = "not opened, because its end is torn"
        return Finding("database", "warning", text, "mend it first")
    moved = ""
    try:
        if repair and (count := set_faulty_records_aside(directory)):
            moved = f"; {count} damaged ones were moved to {RECORDS}.damaged"
        database = open_database(directory)
    except (OSError, ValueError) as error:
        return Finding("database", "fault", str(error), "see above; keep a copy before you edit")
    secs = [record.run_secs for record in database.get_all_tuning_records()]
    unmeasured = sum(map(is_unmeasured, secs))
    failed = sum(not valid_secs(one) for one in secs) - unmeasured
    let_down = f", {unmeasured} not measured because the machine failed" if unmeasured else ""
    text = f"{len(database)} records, {failed} of them failures{let_down}{moved}"
    return Finding("database", "ok", text)


def _is_filled(path: Path) -> bool:
    """True if a file exists and is not empty."""
    return path.exists() and path.stat().st_size > 0


def _target(directory: Path) -> Finding:
    from ...host import host_target
    from ...session.work_dir import SETTINGS, plain, read_settings

    path = directory / SETTINGS
    if not path.exists():
        return Finding("target", "ok", f"not known: there is no {SETTINGS}")
    try:
        target = dict(read_settings(path.read_text(encoding="utf-8"))["target"])
    except (ValueError, LookupError, TypeError):
        text = f"{path} is damaged: expected an object with the target"
        return Finding("target", "fault", text, "pass another work_dir")
    if target.get("kind") == "cuda":
        return gpu_target(target)
    found, own = (
        " ".join(str(each[name]) for name in ("mcpu", "mattr") if name in each)
        for each in (target, plain(host_target().export()))
    )
    if own != found:
        text = f"it was tuned for {found}, and this CPU is {own}"
        advice = "tune in another directory; its records stay good for that CPU"
        return Finding("target", "warning", text, advice)
    return Finding("target", "ok", f"{found}, as this CPU; records in {RECORDS}")
