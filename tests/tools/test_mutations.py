"""The mutations of tests/conform/mutations.txt: each applies to the tree as it is, and its contract, row or program has
a test. A sample of them is caught."""

import subprocess
import sys
from pathlib import Path

import pytest

import marks
import support

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).resolve().parent))

import conformance  # noqa: E402
import lightning_page  # noqa: E402
import mutations  # noqa: E402

TABLE = mutations.read(mutations.TABLE.read_text())
# Contracts whose marked tests have to have a mutation that they notice.
ASKED = {*range(1, 22), 26, 37, 44}


@pytest.mark.parametrize("mutation", TABLE, ids=[m.name for m in TABLE])
def test_mutation_applies_to_the_tree(mutation):
    assert mutation.path.endswith(".c"), "a header would compile everything again"
    assert mutation.applied_to(ROOT) != (ROOT / mutation.path).read_text()


def test_each_contract_that_has_a_test_has_a_mutation():
    marked = {contract for found in conformance.marks().values() for contract, _ in found}
    have = {int(m.judge.split()[1]) for m in TABLE if m.judge.startswith("contract ")}
    assert have <= marked and ASKED & marked <= have, f"without a mutation, or without a test: {have ^ ASKED & marked}"


def test_tests_that_a_mutation_names_are_there():
    assert {m.judge.split()[0] for m in TABLE} == {"contract", "row", "program"}
    for m in TABLE:
        assert all(source.is_file() for source in mutations.cases_of(m.judge)[1]), m


def test_row_of_a_method_has_to_notice_by_its_own_tests():
    page = "## 000 S\n| method | C name | file | test |\n|---|---|---|---|\n" \
           "| a | `x` | `f` | `tests/a.c::test_a`, `tests/b.py::test_b` |\n| b | later: xla | - | - |\n"
    assert lightning_page.tests_of("000 S/a", page) == ["tests/a.c::test_a", "tests/b.py::test_b"]
    for wrong, why in (("000 S/c", "has no row"), ("001 S/a", "has no row"), ("000 S/b", "names no test")):
        with pytest.raises(ValueError, match=why):
            lightning_page.tests_of(wrong, page)
    what, sources = mutations.cases_of("row 004 Fabric/save")
    assert what == ["--case", *lightning_page.tests_of("004 Fabric/save", lightning_page.PAGE.read_text())]
    assert sources == [ROOT / f"tests/unit/fabric/{name}.c" for name in ("test_fabric", "test_fabric_load")]


@pytest.mark.parametrize("head, old, why", [
    ("row 004 Fabric/no_such_method: x in fabric/log.c", "", "has no row"),
    ("row 003 XLAStrategy/barrier: x in fabric/log.c", "", "names no test"),
    ("row 004 Fabric/print: x in fabric/log.c", "no such line\n", "0 times, not once"),
])
def test_row_that_is_not_there_or_applies_nowhere_is_refused(tmp_path, monkeypatch, head, old, why):
    table = tmp_path / "mutations.txt"
    table.write_text(f"{head}\n-{old or 'a'}\n")
    monkeypatch.setattr(mutations, "TABLE", table)
    monkeypatch.setattr(sys, "argv", ["mutations.py", "--build", str(ROOT / "build"), "--list"])
    with pytest.raises(SystemExit, match=why):
        mutations.main()


def test_text_that_is_there_twice_or_not_at_all_is_refused(tmp_path):
    (tmp_path / "a.c").write_text("int a;\nint a;\nint b;\n")
    assert mutations.Mutation("contract 1", "x", "a.c", "int b;\n", "int c;\n").applied_to(tmp_path) == "int a;\nint a;\nint c;\n"
    for path, old in (("a.c", "int a;\n"), ("a.c", "int d;\n"), ("none.c", "int a;\n")):
        with pytest.raises(ValueError, match="not once"):
            mutations.Mutation("contract 1", "x", path, old, "").applied_to(tmp_path)


def test_table_is_read_as_it_says():
    assert mutations.read("# note\ncontract 4: x in a/b.c\n-one\n-  two\n+three\n") == \
        [mutations.Mutation("contract 4", "x", "a/b.c", "one\n  two\n", "three\n")]
    for judge in ("program tests/sim/test_y", "row 004 Fabric/save", "row Beyond the documents/manual optimizer.step"):
        assert mutations.read(f"{judge}: x in a.c\n-one\n") == [mutations.Mutation(judge, "x", "a.c", "one\n")]
    for wrong in ("row save: x in a.c\n-b\n", "-a\n", "contract 4: x in a.c\n+b\n", "contract 4: x in a.c\n-b\n+b\n", "what is this\n",
                  2 * "contract 4: x in a.c\n-b\n"):
        with pytest.raises(ValueError):
            mutations.read(wrong)


def test_word_is_a_contract_or_a_part_of_a_name():
    m = mutations.Mutation("contract 4", "mean_is_a_sum", "a.c")
    assert mutations.matches(m, "") and mutations.matches(m, "4") and mutations.matches(m, "is_a")
    assert mutations.matches(mutations.Mutation("program tests/sim/test_y", "x", "a.c"), "sim/")
    assert mutations.matches(mutations.Mutation("row 004 Fabric/save", "x", "a.c"), "Fabric/")
    assert not mutations.matches(m, "14") and not mutations.matches(m, "is_an") and not mutations.matches(m, "contr")


def test_build_outside_the_tree_is_refused_with_the_way_out(tmp_path):
    ran = subprocess.run([sys.executable, ROOT / "tests/tools/mutations.py", "--build", tmp_path], capture_output=True,
                         text=True, timeout=60)
    assert ran.returncode == 1 and "give B a folder of the tree" in ran.stderr and "Traceback" not in ran.stderr


@marks.full_only
@pytest.mark.alone
def test_sample_of_mutations_is_caught():
    """All of them: `make mutations`."""
    ran = subprocess.run([sys.executable, ROOT / "tests/tools/mutations.py", "--build", support.BUILD, "--sample", "3"],
                         capture_output=True, text=True, timeout=1500)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "3 of 3 mutations caught" in ran.stdout
