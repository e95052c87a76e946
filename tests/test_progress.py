# SPDX-License-Identifier: Apache-2.0
"""Console output from a search's log, and the summary per phase."""

import io
import logging
import math
import re
from pathlib import Path
from typing import Any

import pytest

from tvm.s_tir.meta_schedule.logging import get_loggers_from_work_dir
from tvm_droplet_ms.display.progress import quiet_tvm, show_progress
from tvm_droplet_ms.search_strategy.log import Event, Phase, SearchProgress, logger


def _say(
    event: Event, phase: Phase, trials: int, best_secs: float, best_trace: Any, text: str = "..."
) -> None:
    progress = SearchProgress("task", event, phase, trials, best_secs, best_trace, {})
    logger.info(text, extra={"progress": progress})


def test_progress_prints_one_line_per_record() -> None:
    stream = io.StringIO()
    with show_progress({"task": 2e9}, stream=stream):
        _say("phase", "explore", 0, math.inf, None, "it begins")
        _say("batch", "explore", 32, 0.02, "trace", "of several\n  lines")
        logger.warning("a warning\nof two lines")
        logger.info("another task, without a rate")
    logger.warning("after the run, elsewhere")
    lines = [re.sub(r"^\[ *\d+\.\d s\] *", "", line) for line in stream.getvalue().splitlines()]
    assert lines == [
        "- GFLOP/s  it begins",
        "100.0 GFLOP/s  of several lines",
        "WARNING: a warning of two lines",
        "another task, without a rate",
    ]


def test_show_progress_restores_the_logger() -> None:
    before = (logger.level, logger.propagate, list(logger.handlers))
    with pytest.raises(RuntimeError), show_progress({}, stream=io.StringIO()):
        raise RuntimeError
    assert (logger.level, logger.propagate, list(logger.handlers)) == before


def test_elapsed_seconds_count_from_the_start() -> None:
    stream = io.StringIO()
    with show_progress({}, start=100.0, stream=stream):
        record = logging.makeLogRecord({"name": logger.name, "msg": "hello", "levelno": 20})
        record.created = 112.5
        logger.handle(record)
    assert stream.getvalue().startswith("[  12.5 s] ")


def test_trials_count_for_their_phase() -> None:
    with show_progress({}, stream=io.StringIO()) as recorder:
        _say("phase", "explore", 0, math.inf, None)
        _say("batch", "explore", 32, 5.0, "a")
        _say("batch", "explore", 40, 4.0, "b")
        _say("phase", "descend", 40, 4.0, "b")
        _say("batch", "descend", 56, 3.0, "c")
        _say("step", "descend", 56, 3.0, "c")
        _say("phase", "explore", 56, 3.0, "c")
        _say("batch", "explore", 60, 2.0, "d")
        _say("phase", "descend", 60, 2.0, "d")
        _say("batch", "descend", 64, 2.0, "d")
        _say("finished", "descend", 64, 2.0, "d")
    summary = recorder.tasks["task"]
    assert summary.trials == {"explore": 44, "descend": 20}
    # The best trace when the first descent began.
    assert summary.explored == "b"


def test_last_warning_is_kept() -> None:
    with show_progress({}, stream=io.StringIO()) as recorder:
        logger.warning("a first one")
        logger.warning("all %d failed", 3)
        logger.info("it ends")
    assert recorder.last_warning == "all 3 failed"


def test_quiet_tvm_silences_the_console_but_not_the_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logger_of_tvm = logging.getLogger("tvm.s_tir.meta_schedule")
    for run in ("first", "second"):
        logger_of_tvm.setLevel(logging.ERROR)
        with quiet_tvm():
            get_loggers_from_work_dir(str(tmp_path), ["task"])
            logger_of_tvm.info("the table of the %s run", run)
            logger_of_tvm.warning("a warning of the %s run", run)
        assert logger_of_tvm.level == logging.ERROR
    console = capsys.readouterr().out
    assert "the table" not in console
    assert "a warning of the first run" in console and "a warning of the second run" in console
    written = "".join(path.read_text() for path in (tmp_path / "logs").iterdir())
    assert "the table of the first run" in written and "the table of the second run" in written
