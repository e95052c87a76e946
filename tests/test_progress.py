# SPDX-License-Identifier: Apache-2.0
"""TVM's logs during a run."""

import logging
from pathlib import Path

import pytest

from tvm.s_tir.meta_schedule.logging import get_loggers_from_work_dir
from tvm_droplet_ms.display.phases import quiet_tvm


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
