# SPDX-License-Identifier: Apache-2.0
"""The target that a directory's run goes on with."""

import pytest

from tvm.target import Target
from tvm_droplet_ms.session.errors import ModelError
from tvm_droplet_ms.session.work_dir import begun_target, open_work_dir

NAMED = Target({"kind": "llvm", "mcpu": "rocketlake", "num-cores": 1})
FULL = Target({**NAMED.export(), "mattr": ["+avx512bf16", "+amx-tile"]})
LESS = Target({**NAMED.export(), "mattr": ["-avx512f"]})
BOTH = Target({**NAMED.export(), "mattr": ["+amx-tile", "-avx512f"]})


@pytest.mark.parametrize(("before", "now"), [(NAMED, FULL), (LESS, BOTH)])
def test_a_run_goes_on_without_what_was_not_added_then(tmp_path, before, now):
    open_work_dir(tmp_path, before, 1)
    found = begun_target(str(tmp_path), "auto", now)
    assert found.export() == before.export()
    assert open_work_dir(tmp_path, found, 1) == tmp_path
    # A target that is asked for is not replaced.
    assert begun_target(str(tmp_path), now, now) is now
    with pytest.raises(ModelError, match="was made for target"):
        open_work_dir(tmp_path, now, 1)


def test_other_directories_have_the_target_of_now(tmp_path):
    assert begun_target(None, "auto", FULL) is FULL
    assert begun_target(str(tmp_path), "auto", FULL) is FULL
    open_work_dir(tmp_path, Target({"kind": "llvm", "mcpu": "znver4", "num-cores": 1}), 1)
    assert begun_target(str(tmp_path), "auto", FULL) is FULL
    (tmp_path / "settings.json").write_text("{")
    assert begun_target(str(tmp_path), "auto", FULL) is FULL
