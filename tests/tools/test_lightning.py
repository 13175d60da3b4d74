"""docs/lightning.md has a row for each method of the five documents, and each row is true: its symbol is in its file,
its test is there, and what it calls `not yet` is nowhere."""

import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import conformance  # noqa: E402
from lightning_page import PAGE, tables, words  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
# The public methods and properties of each document; a class stands for its constructor.
METHODS = {
    "000 Strategy": """Strategy all_gather backward barrier batch_to_device connect model_sharded_context on_exception
        on_train_batch_start optimizer_state optimizer_step process_dataloader reduce reduce_boolean_decision
        save_checkpoint setup_environment teardown training_step validation_step handles_gradient_accumulation
        is_global_zero lightning_module lightning_restore_optimizer""",
    "001 Accelerator": """Accelerator all_gather backward batch_to_device broadcast clip_gradients connect
        connect_precision_plugin connect_training_type_plugin dispatch lightning_module_state_dict
        model_sharded_context on_train_end on_train_epoch_end on_train_start optimizer_state optimizer_step
        optimizer_zero_grad post_dispatch pre_dispatch predict_step process_dataloader save_checkpoint setup
        setup_environment setup_optimizers setup_precision_plugin setup_training_type_plugin teardown test_step
        test_step_end to_device training_step training_step_end validation_step validation_step_end
        call_configure_sharded_model_hook lightning_module model results setup_optimizers_in_pre_dispatch""",
    "002 DDPSpawnStrategy": """DDPSpawnStrategy add_to_queue barrier broadcast get_from_queue model_to_device
        pre_backward predict_step reduce setup spawn teardown test_step training_step validation_step root_device""",
    "003 XLAStrategy": """XLAStrategy all_gather barrier broadcast model_to_device process_dataloader reduce
        remove_checkpoint save_checkpoint setup setup_environment teardown root_device""",
    "004 Fabric": """Fabric all_gather autocast backward barrier call load log log_dict no_backward_sync print run save
        seed_everything setup setup_dataloaders setup_module setup_optimizers sharded_model to_device device
        global_rank is_global_zero local_rank logger loggers node_rank world_size""",
}
# A table that is checked like theirs: what Lightning has besides.
MORE = "Beyond the documents"
CONTRACTS = 46


def is_there(symbol, text):
    return all(re.search(rf"\b{re.escape(part)}\b", text) for part in symbol.split("."))


def check_test(name):
    path, _, case = name.partition("::")
    file = ROOT / path
    if not file.is_file():
        return [f"there is no {path}"]
    return [] if re.search(rf"\b{case}\(", file.read_text()) else [f"{path} has no case {case}"]


def check_row(row, everything):
    """What is wrong with a row: method, C name, file, test."""
    name, symbols, files, tests = row
    if symbols.startswith("later: "):
        return []
    if "not yet" in (files, tests):
        new = [s for s in words(symbols) if s.startswith(("td_", "TD_")) and is_there(s, everything)]
        return [f"{name}: {s} exists, say where it is and what tests it" for s in new]
    if not words(symbols) or not words(files) or not words(tests):
        return [f"{name}: no symbol, file or test"]
    missing = [f for f in words(files) if not (ROOT / f).is_file()]
    if missing:
        return [f"{name}: there is no {f}" for f in missing]
    text = "\n".join((ROOT / f).read_text() for f in words(files))
    gone = [f"{name}: {s} is not in {files}" for s in words(symbols) if not is_there(s, text)]
    return gone + [f"{name}: {p}" for t in words(tests) for p in check_test(t)]


def source():
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "include", "fabric", "engine", "lib"], cwd=ROOT,
                            check=True, capture_output=True, text=True).stdout.split()
    return "\n".join((ROOT / p).read_text() for p in listed if p.endswith((".c", ".h", ".def")) and (ROOT / p).exists())


def test_each_method_has_one_row():
    page = tables(PAGE.read_text())
    for document, methods in METHODS.items():
        assert sorted(r[0] for r in page[document]) == sorted(methods.split())


def test_each_row_is_true():
    page, everything = tables(PAGE.read_text()), source()
    wrong = [f"{d}: {p}" for d in (*METHODS, MORE) for row in page[d] for p in check_row(row, everything)]
    for rule, _, files, tests in page["Rules where the documents disagree"]:
        wrong += [f"{rule}: there is no {f}" for f in words(files) if not (ROOT / f).is_file()]
        wrong += [f"{rule}: {p}" for t in words(tests) for p in check_test(t)] if words(tests) else [f"{rule}: no test"]
    assert not wrong, "\n".join(wrong)


def test_only_what_needs_xla_is_later():
    page = tables(PAGE.read_text())
    assert not [r for d in METHODS if not d.startswith("003") for r in page[d] if r[1].startswith("later")]


def test_each_rule_and_contract_has_a_row():
    page = tables(PAGE.read_text())
    assert [r[0] for r in page["Rules where the documents disagree"]] == [f"X{i}" for i in range(1, 13)]
    assert [int(r[0]) for r in page["Contracts"]] == list(range(1, CONTRACTS + 1))
    marked = {contract for found in conformance.marks().values() for contract, _ in found}
    said = {int(r[0]) for r in page["Contracts"] if r[2] == "marked"}
    assert said == marked, f"the page says marked and there is no test, or the other way round: {said ^ marked}"


def test_mark_is_read_with_its_case():
    assert conformance.marks_of("// Contract 2: a\nstatic void test_a(void **state) {\n") == [(2, "test_a")]
    assert conformance.marks_of("# Contract 3: b\n@pytest.mark.x\ndef test_b(launch):\n") == [(3, "test_b")]
    assert conformance.marks_of("// A contract: none\nstatic void test_a(void **state) {\n") == []


def test_case_says_which_implementations_it_passed():
    text = "1..2\n# over collective local\nnot ok 1 - test_a\n# over strategy ddp\nok 2 - test_b\nok 3 - test_c # SKIP\n"
    assert conformance.read_tap(text) == {"test_a": ("fail", ["collective local"]), "test_b": ("pass", ["strategy ddp"]),
                                          "test_c": ("skip", [])}


JUNIT = """<testsuites><testsuite><testcase name="test_a[cpu]">%s</testcase><testcase name="test_a[far]">%s</testcase>
<testcase name="test_b"/><testcase name="test_c"><skipped/></testcase></testsuite></testsuites>"""
OVER = """<properties><property name="over" value="accelerator %s"/></properties>"""


def test_python_case_says_which_implementations_it_passed():
    both, one = JUNIT % (OVER % "cpu", OVER % "far"), JUNIT % (OVER % "cpu", OVER % "far" + "<failure/>")
    rest = {"test_b": ("pass", []), "test_c": ("skip", [])}
    assert conformance.read_junit(both) == {"test_a": ("pass", ["accelerator cpu", "accelerator far"]), **rest}
    assert conformance.read_junit(one) == {"test_a": ("fail", ["accelerator cpu"]), **rest}


def test_parameters_name_the_implementations_of_a_case(tmp_path):
    case = ("import pytest\n@pytest.mark.parametrize('accelerator, n', [('cpu', 1), ('far', 2)])\n"
            "def test_a(accelerator, n):\n    pass\n")
    (tmp_path / "test_it.py").write_text(case)
    (tmp_path / "conftest.py").write_text(f"import sys\nsys.path.insert(0, {str(ROOT / 'tests')!r})\n"
                                          + (ROOT / "tests/conftest.py").read_text())
    assert conformance.run_python(ROOT / "build", tmp_path / "test_it.py", ["test_a"], 60) == {
        "test_a": ("pass", ["accelerator cpu", "accelerator far"])}


def test_row_that_is_wrong_is_noticed():
    there, case = "`include/traind/strategy.h`", "`tests/unit/train/rank/test_sampler.c::test_counts_differ_by_one_at_most_when_unpadded`"
    assert check_row(["x", "slot `teardown`", there, case], "") == []
    assert check_row(["x", "slot `tear_up`", there, case], "")
    assert check_row(["x", "slot `teardown`", "`include/traind/none.h`", case], "")
    assert check_row(["x", "slot `teardown`", there, "`tests/unit/train/rank/test_sampler.c::test_none`"], "")
    assert check_row(["x", "slot `teardown`", there, "-"], "")
    assert check_row(["x", "`td_new`", "not yet", "not yet"], "void td_new(void);")
    assert check_row(["x", "`td_new`", "not yet", "not yet"], "void td_newer(void);") == []


def test_implementations_that_a_case_left_out_are_named():
    known = conformance.registered("collective")
    assert {"collective local", "collective shm"} <= set(known)
    assert conformance.column([]) == ": -"
    assert conformance.column(known) == ": " + ", ".join(known)
    mixed = conformance.column(["strategy ddp", "accelerator far", "strategy single_device"])
    assert mixed == ": strategy ddp, strategy single_device, accelerator far; not over accelerator reference"
    left = [name for name in known if name != "collective shm"]
    assert conformance.column(["collective shm"]) == f": collective shm; not over {', '.join(left)}"
