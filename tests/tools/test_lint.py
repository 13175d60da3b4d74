"""The lint itself: a row that is left out of a table, a case, or the docs is named."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import lint  # noqa: E402

OPS = 'TD_OP(ADD, "add", 2, 2, 1)\nTD_OP(CLAMP, "clamp", 1, 1, 1)\n'
TREE = {
    "include/traind/ops.def": OPS,
    "engine/graph/rules/shape_basic.c": "t[TD_OP_COUNT] = {[TD_OP_ADD] = {shape_add, cost}, [TD_OP_CLAMP] = {shape_same, cost}};",
    "engine/graph/rules/gradient_basic.c": "t[TD_OP_COUNT] = {[TD_OP_ADD] = {grad_add, false}};\nhas_none[] = {[TD_OP_CLAMP] = true};",
    "accelerators/reference/kernels.c": "t[TD_OP_COUNT] = {[TD_OP_ADD] = run_add, [TD_OP_CLAMP] = run_clamp};",
    "tests/conform/conform_ops.c": "check(TD_OP_ADD); check(TD_OP_CLAMP);",
    "tests/conform/conform_gradients.c": "check(TD_OP_ADD);",
    "docs/job-spec.md": "# knobs\n| lr | 0.1 |\n",
}


@pytest.fixture
def tree(tmp_path, monkeypatch):
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(lint, "ROOT", tmp_path)
    monkeypatch.setattr(lint, "problems", [])
    return tmp_path


def test_whole_tables_are_fine(tree):
    lint.check_ops()
    assert lint.problems == []


@pytest.mark.parametrize("file, old, new, words", [
    ("engine/graph/rules/shape_basic.c", "[TD_OP_CLAMP] = {shape_same, cost}", "/* [TD_OP_CLAMP] = */ f(TD_OP_CLAMP)", "shape and cost"),
    ("engine/graph/rules/gradient_basic.c", "[TD_OP_CLAMP] = true", "", "gradient rule"),
    ("engine/graph/rules/gradient_basic.c", "[TD_OP_ADD] =", "// [TD_OP_ADD] =", "gradient rule"),
    ("accelerators/reference/kernels.c", "[TD_OP_ADD] = run_add", "x(TD_OP_ADD)", "a kernel"),
    ("tests/conform/conform_ops.c", "check(TD_OP_CLAMP)", "// TD_OP_CLAMP", "conformance case"),
    ("tests/conform/conform_gradients.c", "check(TD_OP_ADD)", "", "gradient case"),
])
def test_row_that_is_left_out_is_named(tree, file, old, new, words):
    text = (tree / file).read_text()
    assert old in text
    (tree / file).write_text(text.replace(old, new))
    lint.check_ops()
    assert len(lint.problems) == 1 and words in lint.problems[0], lint.problems
    assert ("CLAMP" if "CLAMP" in old else "ADD") in lint.problems[0]


@pytest.mark.parametrize("written, line", [("# knobs\n| lr | 0.2 |\n", 2), ("# knobs\n", 2), (None, 0),
                                           ("# knobs\n| lr | 0.1 |\n| more |\n", 3)])
def test_docs_that_differ_from_the_program_are_named(tree, written, line):
    program = tree / "traind"
    program.write_text("#!/bin/sh\nprintf '# knobs\\n| lr | 0.1 |\\n'\n")
    program.chmod(0o755)
    if written is not None:
        (tree / "docs/job-spec.md").write_text(written)
    lint.check_spec_doc(program)
    assert [p.split(":")[:2] for p in lint.problems] == ([["docs/job-spec.md", str(line)]] if line else [])


def test_prints_that_pass_strangers_text_are_named(tree):
    lint.check_prints("client/list.c", 'printf("%s", job->name); snprintf(a, 1, ""); td_print(stdout, "");')
    assert len(lint.problems) == 1 and "td_print" in lint.problems[0]
    lint.check_prints("daemon/main.c", 'printf("%s", x);')
    assert len(lint.problems) == 1
