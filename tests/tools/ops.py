"""What a row of ops.def needs elsewhere, for lint.py: without a rule or a loop its first use would crash.

A place wants a row of its table, "[TD_OP_X] =", which a mention in another rule is not. `read` gives the code of the
files of a pattern, by path, without comments. What columns of a row say of each other the compiler checks
(engine/graph/rules/rules.c).
"""

import re

TABLE = "include/traind/ops.def"
COLUMNS = ["id", "name", "min_in", "max_in", "n_out", "types", "gradient", "is"]
SHAPE_RULES = "engine/graph/rules/shape*.c"
GRADIENT_RULES = "engine/graph/rules/gradient*.c"
LOOPS = "accelerators/reference/*.c"
# By the executor itself: the operands of select are bool and other types; a reduction is the group's.
LOOPS_ELSEWHERE = ["SELECT", "ALL_REDUCE", "REDUCE_SCATTER", "ALL_GATHER", "AWAIT"]
# These know ops by name: a number changes with every row that is put before it.
KERNELS = "accelerators/cpu/kernels/**/*.c"
CASES = "tests/conform/conform_ops*.c"
GRADIENT_CASES = "tests/conform/conform_gradients*.c"
BUILDERS = "include/traind/build.h"
BUILDER_CASES = "tests/unit/graph/test_build.c"


def line_of(code, position):
    return code.count("\n", 0, position) + 1


def found(read, pattern, what):
    """What an expression finds in the code of some files."""
    return {x for code in read(pattern).values() for x in re.findall(what, code)}


def rows_of(read, pattern):
    """Ops that have a row in a table."""
    return found(read, pattern, r"\[TD_OP_(?!COUNT\b)(\w+)\]\s*=")


def table_of(read, problem):
    """The rows of ops.def: a dictionary each, of COLUMNS and the line."""
    code, table = read(TABLE)[TABLE], []
    for m in re.finditer(r"^TD_OP\(([^)]*)\)", code, flags=re.M):
        line, fields = line_of(code, m.start()), [x.strip(' "\n') for x in m[1].split(",")]
        if len(fields) != len(COLUMNS):
            problem(TABLE, line, f"the row has {len(fields)} columns, not {', '.join(COLUMNS)}")
        else:
            table.append(dict(zip(COLUMNS, fields)) | {"line": line})
    return table


def check_gradients(table, rules, problem):
    """The column says where the gradient comes from: a rule has a row, and a partner is the next row."""
    before = {"id": "", "gradient": ""}
    for row, after in zip(table, [*table[1:], before]):
        op, says = row["id"], row["gradient"]
        if (says == "RULE") != (op in rules):
            problem(TABLE, row["line"], f"{op} is {says} and has {'a' if op in rules else 'no'} gradient rule in {GRADIENT_RULES}")
        if says.startswith("OF_") and (after["id"] != f"{op}_GRAD" or after["gradient"] != "THEN"):
            problem(TABLE, row["line"], f"{op} is {says} and the next row is not {op}_GRAD, which is THEN")
        if says == "THEN" and not before["gradient"].startswith("OF_"):
            problem(TABLE, row["line"], f"{op} is THEN and the row before has no gradient of it")
        before = row


def check_kernels(table, read, problem):
    names = {row["name"] for row in table}
    for path, code in read(KERNELS).items():
        for m in re.finditer(r"td_kernel_is\(\w+, \"(\w+)\"\)|\{\"(\w+)\", run_\w+\}", code):
            if (m[1] or m[2]) not in names:
                problem(path, line_of(code, m.start()), f"{m[1] or m[2]} is no op of {TABLE}")


def check_builders(table, read, problem):
    """A module records each op that is not made by passes through a builder of its name, and no others have one. What
    is no row of a macro has a case."""
    recorded = {row["name"] for row in table if "TD_OP_IS_MADE" not in row["is"]}
    code, cases, built = read(BUILDERS)[BUILDERS], read(BUILDER_CASES)[BUILDER_CASES], set()
    for m in re.finditer(r"^TD_BUILD_(?:UNARY|BINARY|REDUCE)\((\w+), (\w+)\)", code, flags=re.M):
        if m[1] != m[2].lower():
            problem(BUILDERS, line_of(code, m.start()), f"td_build_{m[1]} builds {m[2]}")
        built.add(m[1])
    for m in re.finditer(r"\btd_build_(?!node\b)(\w+)\(struct td_graph \*g,", code):
        if f"td_build_{m[1]}(" not in cases:
            problem(BUILDERS, line_of(code, m.start()), f"td_build_{m[1]} has no case in {BUILDER_CASES}")
        built.add(m[1])
    for name in sorted(recorded - built):
        problem(BUILDERS, 1, f"{name} of {TABLE} has no builder td_build_{name}; or is it TD_OP_IS_MADE?")
    for name in sorted(built - recorded):
        problem(BUILDERS, 1, f"td_build_{name} builds no op that a module records ({TABLE})")


def check(read, problem):
    table = table_of(read, problem)
    check_gradients(table, rows_of(read, GRADIENT_RULES), problem)
    check_kernels(table, read, problem)
    check_builders(table, read, problem)
    for what, pattern, named, wanted in (
            ("row for a shape and cost rule", SHAPE_RULES, rows_of(read, SHAPE_RULES), lambda row: "TD_OP_IS_ELEMENTWISE" not in row["is"]),
            ("row for a kernel", LOOPS, rows_of(read, LOOPS), lambda row: row["id"] not in LOOPS_ELSEWHERE),
            ("conformance case", CASES, found(read, CASES, r"\bTD_OP_(\w+)"), lambda row: True),
            ("gradient case", GRADIENT_CASES, found(read, GRADIENT_CASES, r"\bTD_OP_(\w+)"), lambda row: row["gradient"] not in ("NONE", "THEN"))):
        for row in table:
            if wanted(row) and row["id"] not in named:
                problem(TABLE, row["line"], f"{row['id']} has no {what} in {pattern}")
