# SPDX-License-Identifier: Apache-2.0
"""``docs/troubleshooting.md``: its messages are the package's, and its faults have tests."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "troubleshooting.md"

TESTS = {
    "The two versions": ["compat/test_versions.py::test_import_fails_with_crashing_versions"],
    "No C++ compiler": ["doctor/test_doctor.py::test_faults_of_a_machine_are_named"],
    "The model has open extents": [
        "frontends/test_frontends.py::test_all_that_is_missing_is_asked_for_at_once"
    ],
    "An operator, or its form": [
        "frontends/test_onnx_import.py::test_what_cannot_be_imported_is_one_sentence"
    ],
    "A Relax parameter has no value": [
        "frontends/test_frontends.py::TestRelax::test_an_unbound_parameter_is_named"
    ],
    "TVM's importer is wrong": [
        "frontends/test_onnx_import.py::test_a_wrong_import_names_its_node_and_blames_no_pass"
    ],
    "A graph pass was wrong": [
        "tuning/check/test_agreement.py"
        "::TestTune::test_a_pass_that_changes_the_outputs_is_left_out_and_named"
    ],
    "LLVM did not compile": [
        "tuning/check/test_agreement.py"
        "::test_a_kernel_that_is_not_compiled_in_time_has_a_plain_schedule"
    ],
    "`torch.compile` did not": [
        "tuning/pytorch/test_dynamo.py::test_what_is_not_compiled_runs_as_before_with_a_word",
        "tuning/pytorch/test_dynamo.py::test_a_second_shape_is_told_with_what_to_do",
    ],
    "This process has tuned with fewer threads": [
        "session/test_threads.py::test_more_threads_than_before_are_refused_with_what_to_do"
    ],
    "No valid schedule was found": [
        "tuning/picks/test_first_picks.py::TestWorkers"
        "::test_get_one_schedule_of_a_task_that_takes_too_long",
        "tuning/picks/test_first_picks.py::TestWorkers"
        "::test_leave_a_task_that_has_no_plain_schedule_either",
    ],
    "A kernel or a build hangs": [
        "kernel_tuning/test_kernel_faults.py::test_kernels_that_hang_crash_and_run_out_of_memory",
        "measure/test_runner.py::test_kernel_that_hangs",
    ],
    "A kernel crashed; its process": [
        "kernel_tuning/test_kernel_faults.py::test_kernels_that_hang_crash_and_run_out_of_memory",
        "measure/test_runner.py::test_broken_artifact_fails_only_its_candidate",
    ],
    "The card refused a launch": [
        "gpu/test_driver_faults.py::test_a_fault_costs_one_candidate_and_its_process",
        "gpu/test_driver_faults.py::test_a_fault_is_told_in_words",
    ],
    "A GPU failed to run a schedule in the final check": [
        "gpu/test_driver_faults.py::test_a_fault_in_the_check_is_no_wrong_schedule",
        "kernel_tuning/test_kernel_choice.py"
        "::test_what_the_device_does_not_run_again_is_not_called_wrong",
    ],
    "A candidate runs out of memory": [
        "kernel_tuning/test_kernel_faults.py::test_kernels_that_hang_crash_and_run_out_of_memory",
        "measure/test_pool.py::test_worker_that_ran_out_of_memory_is_replaced",
    ],
    "A schedule is wrong": [
        "kernel_tuning/test_tune_kernel.py::TestWrong::test_is_never_handed_over",
        "kernel_tuning/test_tune_kernel.py::TestWrong::test_alone_ends_in_words",
    ],
    "All candidates failed": ["kernel_tuning/test_kernel_faults.py::test_all_builds_fail"],
    "Times are NaN": [
        "measure/test_runner.py::test_time_that_is_not_positive_number_is_failure",
        "measure/test_runner.py::test_database_of_invalid_times_opens_again",
    ],
    "The space generator made no": [
        "kernel_tuning/test_kernel_faults.py::test_an_empty_space_ends_in_words"
    ],
    "No candidate was valid": [
        "kernel_tuning/test_kernel_faults.py::test_postprocessors_that_reject_all_are_named"
    ],
    "The time ended before the first batch": [
        "kernel_tuning/test_kernel_faults.py::test_time_that_is_over_before_the_first_batch"
    ],
    "The disk of the work directory is full": [
        "kernel_tuning/test_kernel_faults.py::test_records_that_do_not_reach_a_full_disk"
    ],
    "The disk of temporary files is full": [
        "kernel_tuning/test_kernel_faults.py::test_a_full_temporary_directory_spends_no_trials",
        "measure/test_builder.py::test_full_temporary_directory",
        "measure/test_builder.py::test_files_that_cannot_be_written",
    ],
    "The machine failed during the check": [
        "kernel_tuning/test_kernel_faults.py::test_a_full_disk_while_checking_marks_no_record"
    ],
    "The directory is read-only": [
        "kernel_tuning/test_kernel_faults.py::test_a_read_only_directory",
        "kernel_tuning/test_kernel_faults.py::test_a_read_only_directory_from_the_shell",
    ],
    "Two runs share one directory": [
        "kernel_tuning/test_tune_kernel.py::test_a_second_writer_is_refused",
        "cli/test_interruption.py::test_a_second_run_leaves_the_command_of_the_first",
    ],
    "The directory is of another target": [
        "kernel_tuning/test_kernel_faults.py::test_another_target_is_refused_and_changes_nothing",
        "cli/test_interruption.py::test_another_target_leaves_the_command_of_the_first",
        "doctor/test_doctor.py::test_a_damaged_line_and_another_target",
    ],
    "This run would overwrite it": [
        "kernel_tuning/test_kernel_library.py"
        "::test_another_kernel_does_not_overwrite_the_result_of_the_first",
        "kernel_tuning/test_kernel_library.py::test_a_result_runs_and_exports_its_own_library",
    ],
    "This run would overwrite `model.so`": [
        "tuning/test_tuning_parts.py::test_another_network_is_refused_in_a_sentence_that_names_both",
        "tuning/test_tuning_parts.py"
        "::test_other_weights_leave_the_executable_of_the_first_under_another_name",
    ],
    "A killed run or a full disk left half a line": [
        "kernel_tuning/test_kernel_faults.py::test_records_that_do_not_reach_a_full_disk",
        "session/test_torn_database.py::test_a_line_torn_anywhere_is_cut_off_and_no_other",
        "doctor/test_doctor.py::test_a_torn_end_is_told_and_mended",
    ],
    "Other lines are damaged": [
        "doctor/test_doctor.py::test_damaged_records_are_set_aside_and_others_kept",
        "kernel_tuning/test_kernel_faults.py::test_a_damaged_record_is_named_and_left_alone",
        "session/test_database.py::test_every_faulty_line_is_named",
        "session/test_database.py::test_nan_time_written_by_tvm_is_named",
        "session/test_database.py::test_unreplayable_trace_is_named",
    ],
    "The directories to merge": ["test_merging.py::test_what_cannot_be_compared_is_refused"],
    "Ctrl-C or SIGTERM": [
        "kernel_tuning/test_tune_kernel.py::test_a_signal_ends_the_run_with_what_it_has"
    ],
    "The signal came before the first batch": [
        "kernel_tuning/test_kernel_faults.py::test_a_signal_before_the_first_batch"
    ],
    "A second signal": [
        "cli/test_interruption.py::test_a_signal_outside_of_the_tuning_ends_in_words",
        "cli/test_interruption.py::test_signals_that_are_ignored_stay_so",
    ],
    "The process was killed": [
        "cli/test_interruption.py::test_a_killed_run_is_resumed_and_measures_no_schedule_again",
        "kernel_tuning/test_kernel_faults.py::test_folders_of_killed_checks_are_removed",
        "measure/test_pool.py::test_parent_killed",
        "tuning/test_killed_run.py::test_a_run_killed_after_its_first_records_loses_nothing",
    ],
    "The clock jumped": [
        "cli/test_resume.py::test_a_clock_jump_costs_a_run_that_ends_nothing",
        "cli/test_resume.py::test_a_clock_jump_costs_a_killed_run_its_minutes_at_most",
    ],
    "A server died": ["measure/test_fleet.py::test_a_killed_server_costs_no_candidate"],
    "A kernel crashed on a server of `droplet-ms serve`": [
        "measure/test_fleet.py::test_a_server_of_ours_outlives_a_crash_and_ends_in_order",
        "measure/test_fleet.py::test_faults_of_kernels_are_their_own_and_the_server_goes_on",
    ],
    "A kernel crashed on a server of TVM": [
        "measure/test_fleet.py::test_a_server_of_tvm_that_a_crash_ended_is_told_from_a_dead_one"
    ],
    "All servers are gone": [
        "measure/test_fleet.py::test_no_server_ends_in_words",
        "measure/test_fleet.py"
        "::test_without_servers_a_batch_ends_in_words_and_keeps_what_is_measured",
        "kernel_tuning/test_tune_on_fleet.py"
        "::test_a_run_that_loses_its_server_goes_on_with_another",
    ],
    "All servers were lost during the check": [
        "kernel_tuning/test_tune_on_fleet.py"
        "::test_servers_that_are_lost_while_winners_are_checked_make_nothing_wrong",
        "kernel_tuning/test_kernel_choice.py::test_what_cannot_be_built_again_keeps_its_record",
    ],
    "The tracker cannot be reached": [
        "measure/test_fleet.py::test_an_unreachable_tracker_ends_in_words_at_once",
        "measure/test_fleet.py::test_what_is_no_tracker_is_told",
    ],
}
"""The tests of a fault, below ``tests/``, by the first words of its meaning."""

FILLED_IN = re.compile(
    r"\.\.\.|\[\.\.\.\]|\b(?:60|30) s\b|SIG\w+|(?<=ended by )interrupt|(?<=ended: )(?=its process)"
    r"|machinery failure: |FleetRunner: |OSError: .*"
)
"""Words that the package does not say in one piece: names, numbers, paths, words of the system."""

NOT_OURS = {"Killed", "resume"}
"""Words of the shell, and a command."""


def rows() -> list[list[str]]:
    """The cells of the tables, without their headings."""
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| ") and not line.startswith(("| ---", "| Symptom |")):
            found.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return found


def has_test(path: str, names: list[str]) -> bool:
    """True if a file has a test of this name, in classes of these names."""
    body: list[ast.stmt] = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    for name in names:
        nodes = [node for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
        named = [node for node in nodes if node.name == name]
        if not named:
            return False
        body = named[0].body
    return isinstance(named[0], ast.FunctionDef)


def said() -> str:
    """All texts of the package, with a line between what is put together when it runs."""
    texts = []
    for path in sorted((ROOT / "tvm_droplet_ms").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return "\n".join(texts)


def fragments(symptom: str) -> list[str]:
    """The quotations of a symptom, but for what stands for names, numbers and paths."""
    quoted = re.findall(r"`([^`]+)`", symptom)
    parts = [part.strip(" :;,") for text in quoted for part in FILLED_IN.split(text)]
    return [part for part in parts if part and part not in NOT_OURS]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[1])
def test_a_row_is_whole(row: list[str]):
    assert len(row) == 3 and all(row)
    assert row[0] and row[1].endswith(".") and row[2].endswith(".")


def test_messages_are_those_of_the_package():
    texts = said()
    missing = [part for row in rows() for part in fragments(row[0]) if part not in texts]
    assert not missing


@pytest.mark.parametrize("fault", TESTS)
def test_a_fault_has_one_row_and_its_tests_exist(fault: str):
    assert len([row for row in rows() if row[1].startswith(fault)]) == 1
    for test in TESTS[fault]:
        path, *names = f"tests/{test}".split("::")
        assert (ROOT / path).exists(), path
        assert has_test(path, names), test


def test_a_test_that_does_not_exist_is_found():
    own = "tests/test_fault_table.py"
    assert has_test(own, ["test_a_row_is_whole"])
    assert not has_test(own, ["test_of_nothing"])
    assert not has_test(own, ["TESTS"])
