# SPDX-License-Identifier: Apache-2.0
"""The report page of a run: one self-contained HTML file, and its numbers as JSON."""

import json
import math
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any

from tvm.ir import IRModule
from tvm.s_tir.meta_schedule.database import TuningRecord, Workload

from ...compat.versions import package_version
from ...display.state import shown_us
from ...display.tables import shown_deviation, shown_share
from ...session.archive import replacing
from ...session.errors import last_line
from ...session.records import RECORDS, WORKLOADS, parse_line, read_lines
from ...session.roofline import task_work
from ...session.work_dir import RESULT, SCHEDULES, SETTINGS
from ...tuning.held_model import MODEL
from ...tuning.kernel.machine import MACHINE, flop_of
from .curve import curve, latency_plot, roofline_plot
from .history import (
    ReportError,
    RunEvents,
    TaskHistory,
    Trial,
    damaged_line,
    read_events,
    read_history,
    target_names,
)
from .layers import layer_of
from .models import read_models
from .shapes import arguments_of, shape_of, without_types

WORTHS = 8
"""The maximum number of decisions shown per task."""

SLOWER = 1.05
"""The least ratio of a kernel's times, after tuning over before, at which its row is marked."""

NOTABLE = 0.01
"""The least share of the model's time of a kernel that is marked."""

_TEMPLATE = Path(__file__).parent / "page.html.j2"


def write_report(
    work_dir: str | os.PathLike[str], out: str | os.PathLike[str], reload_secs: int | None = None
) -> Path:
    """Write the page of a work directory, and its numbers beside it.

    ``out``: the HTML file. The numbers go to the file of the same name with the suffix ``.json``.
    ``reload_secs``: seconds after which a browser loads the page again; None for never.
    Returns the path of that file. Raises ``ReportError`` if nothing was timed, a file is damaged,
    Jinja2 or Matplotlib is missing, or `out` has the suffix ``.json``.
    """
    if Path(out).suffix == ".json":
        raise ReportError(
            f"out is {os.fspath(out)!r}: the numbers would take its place; expected .html"
        )
    try:
        from jinja2 import Environment, UndefinedError
        from markupsafe import Markup
    except ImportError as error:
        raise ReportError("the page needs Jinja2: pip install 'tvm-droplet-ms[report]'") from error
    # A model that measured nothing has the times of its first executable.
    tasks = read_history(work_dir, may_be_empty=bool(read_models(work_dir)))
    # With several workloads, the events of their kernels are mixed: leave them out.
    is_one = len(tasks) == 1 and len(read_lines(Path(work_dir) / WORKLOADS)) == 1
    events = read_events(work_dir) if is_one else None
    content = numbers_of(work_dir, tasks, events)
    plots = [Markup(curve(task, events.descends_after if events else ())) for task in tasks]
    rooflines = [
        Markup(_roofline(model["kernels"], content["machine"])) for model in content["models"]
    ]
    courses = [
        Markup(latency_plot(**model["course"]) if _has_course(model) else "")
        for model in content["models"]
    ]
    environment = Environment(autoescape=True)
    environment.filters["share"] = shown_share
    environment.filters["deviation"] = shown_deviation
    environment.filters["plain"] = without_types
    environment.filters["short"] = lambda number: shown_us(1e-6 * number)
    environment.filters["bars"] = bars
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    try:
        page = template.render(
            content=content,
            plots=plots,
            rooflines=rooflines,
            courses=courses,
            reload_secs=reload_secs,
        )
    # Only the files below come from outside; this module makes all other values.
    except (UndefinedError, TypeError) as error:
        names = ", ".join((SETTINGS, MACHINE, SCHEDULES, RESULT))
        raise ReportError(
            f"one of {names} in {os.fspath(work_dir)!r} lacks what a run writes: {error}; move it "
            "away, and the page does without it"
        ) from error
    numbers = Path(out).with_suffix(".json")
    for path, text in ((Path(out), page), (numbers, json.dumps(content, indent=1))):
        with replacing(path) as partial:
            partial.write_text(text, encoding="utf-8")
    return numbers


def bars(rows: Sequence[Mapping[str, Any]]) -> list[tuple[float, float, float]]:
    """The bars of rows, in percent of the longest: the roofline, what is above, what was gained."""
    ends = [
        (row["us"] * min(1.0, row.get("roofline_share") or 0.0), row["us"], row.get("before_us"))
        if row["us"]
        else (0.0, 0.0, 0.0)
        for row in rows
    ]
    longest = max((max(us, before or 0.0) for _, us, before in ends), default=0.0) or 1.0
    return [
        (
            100 * least / longest,
            100 * (us - least) / longest,
            100 * max(0.0, (before or 0.0) - us) / longest,
        )
        for least, us, before in ends
    ]


def numbers_of(
    work_dir: str | os.PathLike[str], tasks: Sequence[TaskHistory], events: RunEvents | None = None
) -> dict[str, Any]:
    """The numbers of the page, for JSON. Raises ``ReportError`` if a file is damaged."""
    directory = Path(work_dir)
    workloads, records = (read_lines(directory / name) for name in (WORKLOADS, RECORDS))
    machine = _json(directory / MACHINE)
    peak, on = machine.get("peak_gflops"), target_names(tasks)
    numbers = [
        _task(
            task,
            _workload(directory, workloads, task.workload, task.trials[0].line),
            records,
            peak if isinstance(peak, float) else None,
            on[task.target],
        )
        for task in tasks
    ]
    models = _models(directory, workloads, numbers)
    in_models = {row["task"] for model in models for row in model["kernels"]}
    others = [
        _row(f"kernel {task['workload']}", task["shape"], task["best_us"], place, numbers)
        for place, task in enumerate(numbers)
        if place not in in_models
    ]
    return {
        "work_dir": str(directory),
        "model": _json(directory / MODEL).get("name"),
        "models": models,
        "others": sorted(others, key=lambda row: -(row["us"] or 0.0)),
        "made": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "version": package_version("tvm-droplet-ms"),
        "settings": _json(directory / SETTINGS),
        "machine": machine,
        "result": _json(directory / RESULT) or None,
        "failures_by_kind": dict(events.failures) if events else {},
        "messages": dict(events.messages) if events else {},
        "descends_after": list(events.descends_after) if events else [],
        "trials": sum(len(task.trials) for task in tasks),
        "failures": sum(task.failures for task in tasks),
        "tasks": numbers,
    }


def _models(
    directory: Path, workloads: Sequence[bytes], tasks: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The times of the model for each of its shapes, with a row for each of its kernels."""
    places: dict[str, int] = {}
    for number, line in enumerate(workloads):
        with suppress(ValueError, TypeError, LookupError):
            places[str(parse_line(line)[0])] = number
    task_of = {task["workload"]: place for place, task in enumerate(tasks)}
    schedules = _json(directory / SCHEDULES)
    models = []
    for model in read_models(directory):
        if not tasks and model.ms is not None:  # Nothing came between the first and the last.
            model.before_ms, model.before = None, []
        before = {row["workload"]: row["us"] for row in model.before if model.kernels}
        kernels = model.kernels or model.before
        total = math.fsum(row["us"] for row in kernels) or 1.0
        rows = []
        for row in kernels:
            place = places.get(row["workload"], -1)
            mod = _workload(directory, workloads, place).mod if place >= 0 else None
            shape = "" if mod is None else shape_of(mod)
            found = _row(row["name"], shape, row["us"], task_of.get(place), tasks)
            if model.kernels:
                found |= {"schedule": schedules.get(row["name"]), "is_in_use": True}
            us, before_us = row["us"], before.get(row["workload"])
            found["layer"] = layer_of(row["name"], mod)
            found |= _rates(mod, row["calls"], us)
            is_slower = before_us is not None and us > SLOWER * before_us
            found["is_slower"] = is_slower and us >= NOTABLE * total
            rows.append(row | found | {"share": us / total, "before_us": before_us})
        of_model = asdict(model) | {"kernels": rows, "is_clear": model.is_clear}
        if model.course is not None:
            course = model.course
            of_model["course"] = {"estimates": course.estimates, "measured": course.measured}
        models.append(of_model)
    return models


def _has_course(model: Mapping[str, Any]) -> bool:
    """Whether something was measured after the first executable."""
    return model["course"] is not None and len(model["course"]["estimates"]) > 1


def _rates(mod: IRModule | None, calls: int, us: float) -> dict[str, float | None]:
    """The operations per byte of a kernel and its GFLOP/s by operations that it executes.

    ``calls``, ``us``: the number of its calls, and the microseconds of all. 0 if it only moves
    data; None if the work is unknown.
    """
    work = None
    if mod is not None and us > 0.0:
        with suppress(Exception):  # TVM raises errors of many types if it cannot count.
            work = task_work(mod)
    if work is None or not (work.flops >= 0.0 and work.bytes > 0.0):
        return {"flop_per_byte": None, "executed_gflops": None}
    rate = 1e-3 * calls * work.flops / us
    return {"flop_per_byte": work.flops / work.bytes, "executed_gflops": rate}


def _roofline(kernels: Sequence[Mapping[str, Any]], machine: Mapping[str, Any]) -> str:
    """The picture of the kernels below the machine's roofline; empty if that is not known."""
    peak, bandwidth = machine.get("peak_gflops"), machine.get("memory_gbytes_per_sec")
    if not (isinstance(peak, float) and isinstance(bandwidth, float)):
        return ""
    points = [
        (
            row["flop_per_byte"],
            row["executed_gflops"],
            f"{row['layer'] or row['shape']}: {row['flop_per_byte']:.3g} FLOP per byte, "
            f"{row['executed_gflops']:.4g} GFLOP/s",
        )
        for row in kernels
        if row["flop_per_byte"]
    ]
    return roofline_plot(points, peak, bandwidth) if points else ""


def _row(
    name: str, shape: str, us: float | None, task: int | None, tasks: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """A row of the page: a kernel, and the position of its task, if it was measured."""
    schedule = None if task is None else tasks[task]["schedule"]
    return {"name": name, "shape": shape, "us": us, "task": task, "schedule": schedule}


def _json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}
    except (ValueError, TypeError) as error:
        raise ReportError(
            f"{path} is damaged: {error}; move it away, and the page does without it"
        ) from error


def _workload(directory: Path, lines: Sequence[bytes], number: int, record: int = 0) -> Workload:
    """Read a workload; errors name the file and the line. ``record``: the line that names it."""
    path = directory / WORKLOADS
    if not 0 <= number < len(lines):
        reason = f"it names workload {number}, and {path} has {len(lines)} lines"
        raise damaged_line(directory / RECORDS, record, reason)
    try:
        return Workload.from_json(parse_line(lines[number]))
    # TVM raises errors of many types for an unreadable workload. The message quotes all of it.
    except Exception as error:
        raise damaged_line(path, number, last_line(error)) from error


def _task(
    task: TaskHistory,
    workload: Workload,
    records: Sequence[bytes],
    peak: float | None,
    target: str,
) -> dict[str, Any]:
    mod = workload.mod
    best = task.best
    is_timed = math.isfinite(best.secs)
    first = next((secs for secs in task.best_so_far if math.isfinite(secs)), math.inf)
    rate = _gflops(flop_of(mod), best.secs) if is_timed else None
    return {
        "workload": task.workload,
        "target": target,
        "shape": shape_of(mod),
        "arguments": arguments_of(mod),
        "trials": len(task.trials),
        "failures": task.failures,
        "best_us": 1e6 * best.secs if is_timed else None,
        "first_us": 1e6 * first if is_timed else None,
        "gflops": rate,
        "share_of_peak": rate / peak if rate and peak else None,
        "schedule": _schedule_as_python(records[best.line], workload) if is_timed else None,
        "last_gain": task.last_gain if is_timed else None,
        "best_so_far_us": [1e6 * s if math.isfinite(s) else None for s in task.best_so_far],
        "decisions": [list(pair) for pair in best.decisions] if is_timed else [],
        "worths": [vars(worth) for worth in decision_worths(task.trials)[:WORTHS]],
    }


def _schedule_as_python(line: bytes, workload: Workload) -> str:
    """The schedule of a record as Python code, or a comment that explains why it is unreadable."""
    _, record = parse_line(line)
    try:
        return str(TuningRecord.from_json(record, workload).trace)
    except Exception as error:  # TVM raises errors of many types for an unreadable trace.
        return f"# This version of TVM cannot read it: {str(error).splitlines()[0]}"


def _gflops(flop: float, secs: float) -> float | None:
    """The rate in GFLOP/s; None if it is not finite and positive."""
    rate = flop / secs / 1e9
    return rate if math.isfinite(rate) and rate > 0 else None


@dataclass(frozen=True)
class Worth:
    """The worth of one decision of one design space.

    - ``decision``: the decision's name.
    - ``groups``: number of sets of trials that differ only in this decision.
    - ``trials``: number of trials in these sets.
    - ``median_ratio``, ``largest_ratio``: the median and the maximum over the sets of the ratio of
      the slowest time to the fastest.
    """

    sketch: int
    decision: str
    groups: int
    trials: int
    median_ratio: float
    largest_ratio: float


def decision_worths(trials: Sequence[Trial]) -> list[Worth]:
    """Compare the successful trials of a workload that differ in one decision.

    Returns the worth of each decision with at least one set, the largest median ratio first.
    """
    sets: dict[tuple[int, str], dict[tuple[str, ...], dict[str, float]]] = defaultdict(dict)
    for trial in trials:
        if math.isinf(trial.secs):
            continue
        values = tuple(value for _, value in trial.decisions)
        for place, (name, value) in enumerate(trial.decisions):
            others = (*values[:place], *values[place + 1 :])
            same = sets[trial.sketch, name].setdefault(others, {})
            same[value] = min(trial.secs, same.get(value, math.inf))
    worths = []
    for (sketch, name), found in sets.items():
        alike = [list(times.values()) for times in found.values() if len(times) > 1]
        if alike:
            ratios = [max(times) / min(times) for times in alike]
            counted = sum(map(len, alike))
            worths.append(Worth(sketch, name, len(alike), counted, median(ratios), max(ratios)))
    return sorted(worths, key=lambda worth: -worth.median_ratio)
