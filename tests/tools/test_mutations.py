"""The mutations of tests/conform/mutations.txt: each applies to the tree as it is, and its contract or program has a
test."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).resolve().parent))

import conformance  # noqa: E402
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
    have = {m.contract for m in TABLE if isinstance(m.contract, int)}
    assert have <= marked and ASKED & marked <= have, f"without a mutation, or without a test: {have ^ ASKED & marked}"


def test_program_that_a_mutation_names_is_there():
    for m in TABLE:
        assert isinstance(m.contract, int) or (ROOT / f"{m.contract}.c").is_file(), m


def test_text_that_is_there_twice_or_not_at_all_is_refused(tmp_path):
    (tmp_path / "a.c").write_text("int a;\nint a;\nint b;\n")
    assert mutations.Mutation(1, "x", "a.c", "int b;\n", "int c;\n").applied_to(tmp_path) == "int a;\nint a;\nint c;\n"
    for path, old in (("a.c", "int a;\n"), ("a.c", "int d;\n"), ("none.c", "int a;\n")):
        with pytest.raises(ValueError, match="not once"):
            mutations.Mutation(1, "x", path, old, "").applied_to(tmp_path)


def test_table_is_read_as_it_says():
    assert mutations.read("# note\ncontract 4: x in a/b.c\n-one\n-  two\n+three\n") == \
        [mutations.Mutation(4, "x", "a/b.c", "one\n  two\n", "three\n")]
    assert mutations.read("program tests/sim/test_y: x in a.c\n-one\n") == \
        [mutations.Mutation("tests/sim/test_y", "x", "a.c", "one\n")]
    for wrong in ("-a\n", "contract 4: x in a.c\n+b\n", "contract 4: x in a.c\n-b\n+b\n", "what is this\n",
                  2 * "contract 4: x in a.c\n-b\n"):
        with pytest.raises(ValueError):
            mutations.read(wrong)


def test_word_is_a_contract_or_a_part_of_a_name():
    m = mutations.Mutation(4, "mean_is_a_sum", "a.c")
    assert mutations.matches(m, "") and mutations.matches(m, "4") and mutations.matches(m, "is_a")
    assert mutations.matches(mutations.Mutation("tests/sim/test_y", "x", "a.c"), "sim/")
    assert not mutations.matches(m, "14") and not mutations.matches(m, "is_an")


def test_build_outside_the_tree_is_refused_with_the_way_out(tmp_path):
    ran = subprocess.run([sys.executable, ROOT / "tests/tools/mutations.py", "--build", tmp_path], capture_output=True,
                         text=True, timeout=60)
    assert ran.returncode == 1 and "give B a folder of the tree" in ran.stderr and "Traceback" not in ran.stderr
