# SPDX-License-Identifier: Apache-2.0
"""The end of a database whose writer was killed."""

import pytest

from tvm_droplet_ms.session.records import mend_torn_end

WORKLOADS = "database_workload.json"
RECORDS = "database_tuning_record.json"
LINES = {
    WORKLOADS: ['["-12", "eyJyb290X2luZGV4Ij"]', '["7", "I6IDEyLCAibm9kZXMiOi"]'],
    RECORDS: ['[0, [[["Split"], []], [0.001], {"kind": "llvm"}, []]]', "[1, [[[], []], [1e10]]]"],
}


@pytest.fixture
def work_dir(tmp_path):
    for name, lines in LINES.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    return tmp_path


@pytest.mark.parametrize("name", [WORKLOADS, RECORDS])
def test_a_line_torn_anywhere_is_cut_off_and_no_other(work_dir, name):
    path = work_dir / name
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    # The last is torn inside a letter.
    torn = [whole[:end] for end in range(first + 1, len(whole) - 1)]
    for content in [*torn, whole[:first] + '[2, "\u00e4'.encode()[:-1]]:
        path.write_bytes(content)
        assert mend_torn_end(work_dir) == [name]
        assert path.read_bytes() == whole[:first]
    # One that lacks its newline only gets it.
    path.write_bytes(whole[:-1])
    assert mend_torn_end(work_dir) == []
    assert path.read_bytes() == whole


def test_an_only_line_is_cut_off(work_dir):
    for name in LINES:
        (work_dir / name).write_text("[0, [")
    assert mend_torn_end(work_dir) == [WORKLOADS, RECORDS]
    assert [(work_dir / name).read_bytes() for name in LINES] == [b"", b""]


def test_lines_that_end_are_left_alone(work_dir):
    (work_dir / RECORDS).write_text("[0, [torn\n[1]\n")
    assert mend_torn_end(work_dir) == []
    assert (work_dir / RECORDS).read_text() == "[0, [torn\n[1]\n"


def test_missing_files_stay_missing(tmp_path):
    assert mend_torn_end(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
