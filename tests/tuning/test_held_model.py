# SPDX-License-Identifier: Apache-2.0
"""A work directory holds one model: another one does not overwrite its result."""

import pytest
from small_network import small_model

from tvm_droplet_ms.session.errors import ModelError
from tvm_droplet_ms.tuning import tune
from tvm_droplet_ms.tuning.frontends.identity import ModelIdentity
from tvm_droplet_ms.tuning.held_model import EXECUTABLE, hold_model

FIRST = ModelIdentity("first.onnx", "network 1", "weights 1")


def test_another_network_is_refused_in_a_sentence_that_names_both(tmp_path):
    hold_model(tmp_path, FIRST)
    (tmp_path / EXECUTABLE).write_bytes(b"first")
    with pytest.raises(ModelError) as refusal:
        hold_model(tmp_path, ModelIdentity("second.onnx", "network 2", "weights 1"))
    for part in (repr(str(tmp_path)), "'first.onnx'", "'second.onnx'", "pass another work_dir"):
        assert part in str(refusal.value)
    with pytest.raises(ModelError, match="'first.onnx', with other operators"):
        hold_model(tmp_path, ModelIdentity("first.onnx", "network 2", "weights 1"))
    assert (tmp_path / EXECUTABLE).read_bytes() == b"first"
    assert hold_model(tmp_path, FIRST) == []


def test_a_directory_without_an_executable_has_nothing_to_lose(tmp_path):
    hold_model(tmp_path, FIRST)
    assert hold_model(tmp_path, ModelIdentity("second.onnx", "network 2", "")) == []


def test_other_weights_leave_the_executable_of_the_first_under_another_name(tmp_path):
    hold_model(tmp_path, FIRST)
    (tmp_path / EXECUTABLE).write_bytes(b"first")
    (note,) = hold_model(tmp_path, ModelIdentity("first.onnx", "network 1", "others"))
    assert "model-weights .so" in note
    assert (tmp_path / "model-weights .so").read_bytes() == b"first"
    assert not (tmp_path / EXECUTABLE).exists()


@pytest.mark.parametrize("text", ["", "[]", '{"name": "first.onnx"}'])
def test_a_damaged_file_does_not_keep_a_run_from_going_on(tmp_path, text):
    (tmp_path / EXECUTABLE).write_bytes(b"first")
    (tmp_path / "model.json").write_text(text)
    assert hold_model(tmp_path, FIRST) == []


def test_tune_refuses_before_anything_is_tuned(tmp_path):
    hold_model(tmp_path, FIRST)
    (tmp_path / EXECUTABLE).write_bytes(b"first")
    with pytest.raises(ModelError, match=r"holds the result of another model, 'first\.onnx'"):
        tune(small_model(), work_dir=tmp_path, trials=0, progress=None)
    assert (tmp_path / EXECUTABLE).read_bytes() == b"first"
