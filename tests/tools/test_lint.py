"""The lint itself: a row that is left out of a table, a case, or the docs is named."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import braces  # noqa: E402
import circles  # noqa: E402
import devices  # noqa: E402
import lint  # noqa: E402
import rooms  # noqa: E402
import names  # noqa: E402
import ops  # noqa: E402
import said  # noqa: E402
import spelled  # noqa: E402

ROWS = """TD_OP(ADD, "add", 2, 2, 1, ONE, RULE, 0)
TD_OP(CLAMP, "clamp", 1, 1, 1, ONE, NONE, 0)
TD_OP(RELU, "relu", 1, 1, 1, ONE, OF_RESULT, TD_OP_IS_ELEMENTWISE)
TD_OP(RELU_GRAD, "relu_grad", 2, 2, 1, ONE, THEN,
      TD_OP_IS_ELEMENTWISE | TD_OP_IS_MADE)
"""
EVENTS = ("TD_EVENT(NOTE, note, \"n\")\nTD_WRITER(note, RANK)\nTD_READER(note, COORDINATOR)\nTD_EVENT_DONE(note)\n"
          "TD_EVENT(END, end, \"e\")\nTD_WRITER(end, RANK)\nTD_READER(end, LAUNCHER)\nTD_EVENT_DONE(end)\n")
TREE = {
    "include/traind/ops.def": ROWS,
    "engine/graph/rules/shape_basic.c": "t[TD_OP_COUNT] = {[TD_OP_ADD] = {shape_add, cost}, [TD_OP_CLAMP] = {shape_same, cost}};",
    "engine/graph/rules/gradient_basic.c": "t[TD_OP_COUNT] = {[TD_OP_ADD] = {grad_add, false}};",
    "accelerators/reference/kernels.c":
        "t[TD_OP_COUNT] = {[TD_OP_ADD] = run_add, [TD_OP_CLAMP] = run_clamp, [TD_OP_RELU] = f, [TD_OP_RELU_GRAD] = g};",
    "accelerators/cpu/kernels/elementwise.c": 'rows[] = {{"add", run_add}}; td_kernel_is(k, "relu");',
    "tests/conform/conform_ops.c": "check(TD_OP_ADD); check(TD_OP_RELU, TD_OP_RELU_GRAD); check(TD_OP_CLAMP);",
    "tests/conform/conform_gradients.c": "check(TD_OP_ADD); check(TD_OP_RELU);",
    "include/traind/build.h": "TD_BUILD_UNARY(relu, RELU)\nTD_BUILD_BINARY(add, ADD)\ntd_build_clamp(struct td_graph *g,",
    "tests/unit/graph/test_build.c": "td_build_clamp(g, 2);",
    "docs/job-spec.md": "# knobs\n| lr | 0.1 |\n",
    "docs/events.md": "# events\n",
    "lib/attempt/events.def": EVENTS,
    "engine/train/events/events.c": "begin(TD_EVENT_NOTE); begin(TD_EVENT_END);",
    "daemon/launcher/rank.c": "is(TD_EVENT_END);",
    "daemon/node/shell/planner/planner.c": "is(x);",
    "daemon/coordinator/core/attempt/attempt.c": "t[] = {READ};",
}


@pytest.fixture
def tree(tmp_path, monkeypatch):
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(lint, "ROOT", tmp_path)
    monkeypatch.setattr(lint, "problems", [])
    return tmp_path


def check_ops():
    ops.check(lint.code_of, lint.problem)


def test_whole_tables_are_fine(tree):
    check_ops()
    assert lint.problems == []


@pytest.mark.parametrize("file, old, new, words", [
    ("engine/graph/rules/shape_basic.c", "[TD_OP_CLAMP] = {shape_same, cost}", "/* [TD_OP_CLAMP] = */ f(TD_OP_CLAMP)", "shape and cost"),
    (ops.TABLE, "CLAMP, \"clamp\", 1, 1, 1, ONE, NONE, 0", "CLAMP, \"clamp\", 1, 1, 1, ONE, RULE, 0", "CLAMP is RULE and has no gradient rule"),
    (ops.TABLE, "CLAMP, \"clamp\", 1, 1, 1, ONE, NONE, 0", "CLAMP, \"clamp\", 1, 1, 1, ONE, OF_OPERAND, 0", "the next row is not CLAMP_GRAD"),
    (ops.TABLE, "CLAMP, \"clamp\", 1, 1, 1, ONE, NONE, 0", "CLAMP, \"clamp\", 1, 1, 1, ONE, THEN, 0", "CLAMP is THEN and the row before"),
    (ops.TABLE, "CLAMP, \"clamp\", 1, 1, 1, ONE, NONE, 0", "CLAMP, \"clamp\", 1, 1, 1, ONE, 0", "7 columns"),
    (ops.TABLE, "ADD, \"add\", 2, 2, 1, ONE, RULE", "ADD, \"add\", 2, 2, 1, ONE, NONE", "ADD is NONE and has a gradient rule"),
    ("engine/graph/rules/gradient_basic.c", "[TD_OP_ADD] =", "// [TD_OP_ADD] =", "gradient rule"),
    ("accelerators/reference/kernels.c", "[TD_OP_ADD] = run_add", "x(TD_OP_ADD)", "a kernel"),
    ("tests/conform/conform_ops.c", "check(TD_OP_CLAMP)", "// TD_OP_CLAMP", "conformance case"),
    ("tests/conform/conform_gradients.c", "check(TD_OP_ADD)", "", "gradient case"),
])
def test_row_that_is_left_out_is_named(tree, file, old, new, words):
    text = (tree / file).read_text()
    assert old in text
    (tree / file).write_text(text.replace(old, new))
    check_ops()
    found = [p for p in lint.problems if not any(x in p and x not in words for x in ("gradient case", "builds no op"))]
    assert len(found) == 1 and words in found[0], lint.problems
    assert found[0].startswith(f"{ops.TABLE}:{2 if 'CLAMP' in old else 1}: ")


@pytest.mark.parametrize("old, new", [('{"add", run_add}', '{"axd", run_add}'), ('(k, "relu")', '(k, "relux")')])
def test_kernel_of_an_op_that_is_not_there_is_named(tree, old, new):
    path = tree / "accelerators/cpu/kernels/elementwise.c"
    path.write_text(path.read_text().replace(old, new))
    check_ops()
    assert len(lint.problems) == 1 and "is no op of" in lint.problems[0], lint.problems


@pytest.mark.parametrize("file, old, new, words", [
    (ops.BUILDERS, "TD_BUILD_UNARY(relu, RELU)\n", "", "relu of"),
    (ops.BUILDERS, "(relu, RELU)", "(relu, SILU)", "td_build_relu builds SILU"),
    (ops.BUILDERS, "(relu, RELU)\n", "(relu, RELU)\nTD_BUILD_UNARY(silu, SILU)\n", "td_build_silu builds no op"),
    (ops.BUILDER_CASES, "td_build_clamp(", "td_build_add(", "td_build_clamp has no case"),
])
def test_builder_that_is_wrong_or_missing_is_named(tree, file, old, new, words):
    text = (tree / file).read_text()
    assert old in text
    (tree / file).write_text(text.replace(old, new))
    check_ops()
    assert len(lint.problems) == 1 and words in lint.problems[0], lint.problems


@pytest.mark.parametrize("written, line", [("# knobs\n| lr | 0.2 |\n", 2), ("# knobs\n", 2), (None, 0),
                                           ("# knobs\n| lr | 0.1 |\n| more |\n", 3)])
def test_docs_that_differ_from_the_program_are_named(tree, written, line):
    program = tree / "traind"
    program.write_text("#!/bin/sh\n[ $1 = --dump-spec ] && printf '# knobs\\n| lr | 0.1 |\\n'\n[ $1 = --dump-spec ] || echo '# events'\n")
    program.chmod(0o755)
    if written is not None:
        (tree / "docs/job-spec.md").write_text(written)
    lint.check_printed_docs(program)
    assert [p.split(":")[:2] for p in lint.problems] == ([["docs/job-spec.md", str(line)]] if line else [])


# ---- events -----------------------------------------------------------------------------------------
def test_events_with_writers_and_readers_are_fine(tree):
    lint.check_events()
    assert lint.problems == []


@pytest.mark.parametrize("file, old, new, words", [
    ("lib/attempt/events.def", "TD_READER(note, COORDINATOR)\n", "", "note has no reader"),
    ("lib/attempt/events.def", "TD_WRITER(note, RANK)\n", "TD_WRITER(note, PEOPLE)\n", "does not name RANK"),
    ("lib/attempt/events.def", "(end, LAUNCHER)", "(end, LAUNCHER)\nTD_READER(end, NODE)", "daemon/node has no TD_EVENT_END"),
    ("lib/attempt/events.def", "(end, LAUNCHER)", "(end, LAUNCHER)\nTD_READER(end, NOBODY)", "NOBODY"),
    ("engine/train/events/events.c", "begin(TD_EVENT_NOTE);", "/* TD_EVENT_NOTE */", "engine/train has no TD_EVENT_NOTE"),
    ("daemon/launcher/rank.c", "TD_EVENT_END", "TD_EVENT_END && TD_EVENT_NOTE", "does not name LAUNCHER"),
])
def test_event_without_its_code_is_named(tree, file, old, new, words):
    text = (tree / file).read_text()
    assert old in text
    (tree / file).write_text(text.replace(old, new))
    lint.check_events()
    assert len(lint.problems) == 1 and words in lint.problems[0], lint.problems


@pytest.mark.parametrize("what, home, path, code, n", [
    ("an event", "lib/attempt/events.c", "daemon/node/shell/attempts/forward.c",
     r'''printf("{\"event\":\"end\"}"); get(v, "event"); about("events");''', 2),
    ("an outcome", "lib/attempt/outcome.c", "daemon/worker/run.c",
     'f(s ? "failed" : "done");\ntd_log_info("stopped");\nif (x) return td_fail(TD_CANCELLED, "stopped");\n"is done";', 2),
    ("the name of a checkpoint", "lib/attempt/checkpoint_name.c", "engine/train/checkpoint/best.c",
     'f("%s/step-%lld.tmp"); g("a%u/step-" X); strncmp(s, "step-", 5); glob("step-*"); say("a1/step-5, step-N or step-by-step");', 4),
])
def test_what_stands_in_one_file_is_spelled_out_nowhere_else(tree, what, home, path, code, n):
    spelled.check(path, code, lint.problem)
    spelled.check(home, code, lint.problem)
    assert len(lint.problems) == n and all(p.startswith(f"{path}:1: {what} is spelled out") for p in lint.problems)


def test_prints_that_pass_strangers_text_are_named(tree):
    lint.check_prints("client/list.c", 'printf("%s", job->name); snprintf(a, 1, ""); td_print(stdout, "");')
    assert len(lint.problems) == 1 and "td_print" in lint.problems[0]
    lint.check_prints("daemon/main.c", 'printf("%s", x);')
    assert len(lint.problems) == 1


@pytest.mark.parametrize("code, words", [
    ("m.job = (char *)(uintptr_t)job;", "td_unconst"),
    ("m.names = (char **)(uintptr_t)names;", "td_unconst"),
    ("union { const char *const *in; char *const *out; } u = {.in = v};", "td_unconst"),
    ("#define td_thing_magic 0x7468", "enum"),
    ("static const uint32_t td_thing_magic = 0x7468;", "enum"),
    ("m.job = td_unconst(job); enum { td_thing_magic = 0x7468 }; b.handle = (uint64_t)(uintptr_t)p;", None),
    ("union { double real; struct td_json *first; } u; TD_CHECK(t->magic == td_thing_magic);", None),
])
def test_second_way_of_what_has_one_is_named(tree, code, words):
    lint.check_one_way("lib/base/x.c", code)
    assert [words in p for p in lint.problems] == ([True] if words else [])


@pytest.mark.parametrize("path, ok", [("daemon/worker/devices.c", False), ("accelerators/cuda/x.c", False),
                                      ("lib/nvml/calls.c", True), ("tests/doubles/nvml.c", True)])
def test_call_of_nvml_outside_its_home_is_named(tree, path, ok):
    lint.check_nvml(path, "int code = nvmlInit_v2();")
    assert ["lib/nvml alone" in p for p in lint.problems] == ([] if ok else [True])


@pytest.mark.parametrize("path, code, ok", [
    ("daemon/node/shell/x.c", "int fd = open(path, O_RDONLY | O_CLOEXEC);", False),
    ("engine/train/x.c", "int fd = openat(dir,\n    name, O_RDWR);", False),
    ("workloads/datasets/x.c", 'FILE *f = fopen(path, "re");', False),
    ("lib/plugin/registry.c", "int fd = open(path, O_RDONLY);", False),
    ("daemon/launcher/journal.c", "int fd = open(path, O_WRONLY | O_CREAT, 0600);", True),
    ("engine/train/x.c", "TD_TRY(ops->open(&config, &hook)); TD_TRY(open(r, name)); int a = O_RDONLY;", True),
    ("lib/rpc/x.c", "int fd = open(path, O_RDONLY);", True),
])
def test_file_that_is_opened_by_hand_is_named(tree, path, code, ok):
    lint.opens.check(path, code, lint.problem)
    assert ["td_named_open" in p for p in lint.problems] == ([] if ok else [True])


@pytest.mark.parametrize("body, ok", [
    ("TD_AUTO_BUF b;\n    if (!n) return TD_OK;\n    td_buf_init(&b, 9);", False),
    ("TD_AUTO_BUF b;\n    TD_TRY(open(&x));\n    td_buf_init(&b, 9);", False),
    ("TD_AUTO_BUF b;\n    print(x);", False),
    ("if (!n) return TD_OK;\n    TD_AUTO_BUF b;\n    td_buf_init(&b, 9);\n    TD_TRY(open(&x));", True),
    ("TD_AUTO_BUF b;\n    TD_TRY(make(x, &b));", False),
    ("TD_AUTO_BUF b;\n    make(&b, x);\n    return TD_OK;", True),
])
def test_listing_plugins_freed_a_buffer_that_was_never_made(tree, body, ok):
    lint.check_buffers("a.c", f"static td_status f(int n) {{\n    {body}\n}}\n")
    assert [p.split(":")[1] for p in lint.problems] == ([] if ok else [str(2 + body.split("TD_AUTO")[0].count("\n"))])


@pytest.mark.parametrize("path, columns, off, ok", [
    ("a.c", 100, False, True), ("a.c", 101, False, False), ("a.c", 120, True, True), ("a.c", 121, True, False),
    ("a.def", 120, False, True), ("a.def", 121, False, False),
])
def test_line_that_is_too_wide_is_named(tree, path, columns, off, ok):
    wide = ("ab " * 100)[:columns]
    lint.check_width(path, f"// clang-format off\n{wide}\n// clang-format on\n" if off else f"\n{wide}\n")
    assert [p.split(":")[1] for p in lint.problems] == ([] if ok else ["2"])
    lint.check_width("a.c", f"// clang-format off\n// clang-format on\n{'x' * 101}\n{'a ' * 51}\n")
    assert len(lint.problems) == (1 if ok else 2) and lint.problems[-1].startswith("a.c:4")


BARE = """
int f(int x) {
    if (x) return 1;
    if (x) // not bare: while (x)
        return 2;
    for (int i = 0; i < x; i++)
        if (i) x++;
    while (x--)
        ;
    do {
        x++;
    } while (x < 2);
    if (x) {
        x = 1;
    } else
        x = 2;
    #if (x)
    const char *s = "if (x)";
    if (x == 1 &&
        x == 2) x = 3;
}
#define CHECK(a)       \\
    do {               \\
        if (a) f(a);   \\
    } while (0)

#define EACH(a)        \\
    while (a)          \\
        (a)--
"""


def test_body_without_braces_is_named_and_gets_some():
    found = []
    braces.check("x.c", BARE, lambda path, line, text: found.append(line))
    assert found == [4, 6, 15, 20, 28]
    whole = braces.fixed(BARE)
    braces.check("x.c", whole, lambda path, line, text: found.append(line))
    assert len(found) == 5 and whole.count("{") == whole.count("}") == BARE.count("{") + 5
    assert re.sub(r"[{}\s]", "", whole) == re.sub(r"[{}\s]", "", BARE)


# ---- devices ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("path, code, line", [
    ("engine/train/rank/plugins.c", 'name = n == 1\n    ? "local" : group;', 2),
    ("engine/train/rank/plugins.c", 'return settle(c, "accelerator", "cpu");', 1),
    ("engine/train/plan/choices.c", 'return td_json_string(td_json_get(frozen, "accelerator"), "cpu");', 1),
    ("engine/train/plan/choices.c", 'x = td_json_get(frozen, "cpu"); set_str(a, o, "cpu", k->cpu); td_json_set(a, o, "cpu", v);', 0),
    ("engine/train/plan/choices.c", 'puts("cpus");', 0),
    ("fabric/configure/configure.c", 't->collective = "shm";', 0),
])
def test_plugin_that_the_engine_names_is_named(path, code, line):
    found = []
    devices.check(path, code, lambda path, line, text: found.append(line))
    assert found == ([line] if line else [])


@pytest.mark.parametrize("path, code, line", [
    ("engine/train/rank/state/state.c", "char *p =\n    td_buffer_host(r->memory.region[t->role]);", 2),
    ("engine/train/rank/group/replicas.c", "char *p = td_buffer_host(r->memory.region[t->role]);", 0),
    ("strategies/ddp.c", "void *host = td_buffer_host(region);", 1),
    ("accelerators/cpu/compile.c", "base = (char *)td_buffer_host(b) + at;", 0),
    ("tests/unit/train/checkpoint/test_train_shard.c", "float *v = td_buffer_host(*region);", 0),
    ("engine/train/rank/programs/dump.c", "f((const char *)(uintptr_t)m->region[role].handle);", 1),
    ("engine/train/rank/programs/dump.c", "f((float *)b.handle);", 1),
    ("engine/train/rank/programs/dump.c", "b.handle = (uint64_t)(uintptr_t)image; x = (uintptr_t)b.handle; y = b->handle * (size_t)2;", 0),
])
def test_buffer_that_is_made_an_address_is_named(path, code, line):
    found = []
    devices.check(path, code, lambda path, line, text: found.append(line))
    assert found == ([line] if line else [])


# ---- circles ----------------------------------------------------------------------------------------
LINE = {
    "a/bottom.h": "",
    "a/middle.h": '#include "a/bottom.h"\n',
    "a/middle.c": '#include "a/middle.h"\n',
    "b/top.c": '// story\n#include "a/middle.h"\n#include <stdio.h>\n',
}


def found_circles(files, known=(), joined=circles.joined, what="includes"):
    problems = []
    circles.check(joined(files), what, {"why": k for k in known},
                  lambda path, line, text: problems.append(f"{path}:{line}: {text}"))
    return problems


def test_file_and_its_header_are_one_unit():
    assert found_circles(LINE) == []


@pytest.mark.parametrize("file, header, place, way", [
    ("a/bottom.c", "a/middle.h", "a/bottom.c:1", "a/bottom -> a/middle -> a/bottom"),
    ("a/middle.c", "b/top.h", "a/middle.c:2", "a/middle -> b/top -> a/middle"),
    ("a/bottom.h", "b/top.h", "a/bottom.h:1", "a/bottom -> b/top -> a/middle -> a/bottom"),
])
def test_circle_is_named_with_the_way_round(file, header, place, way):
    files = LINE | {"b/top.h": ""}
    files[file] = files.get(file, "") + f'#include "{header}"\n'
    assert found_circles(files) == [f"{place}: a circle of includes: {way}"]


def test_circle_over_an_installed_header_is_found():
    files = {"include/traind/x.h": '#include "a/y.h"\n', "a/y.h": "", "a/y.c": '#include "traind/x.h"\n'}
    assert len(found_circles(files)) == 1


def test_known_circle_is_passed_over_until_it_is_gone():
    known = [("a/bottom", "a/middle")]
    round_ = LINE | {"a/bottom.c": '#include "a/middle.h"\n'}
    assert found_circles(round_, known) == []
    gone = found_circles(LINE, known)
    assert len(gone) == 2 and all("take it out" in line for line in gone)
    assert len(found_circles(round_, [(*known[0], "b/top")])) == 1  # it has become smaller


def test_circle_that_grew_out_of_a_known_one_is_named():
    files = LINE | {"a/bottom.c": '#include "b/top.h"\n', "b/top.h": ""}
    found = found_circles(files, [("a/bottom", "a/middle")])
    assert len(found) == 3 and "b/top" in found[0] and "take it out" in found[1]


CALLS = {
    "a/shared.h": "struct td_x;\nint td_low(int a);\nint td_mid(struct td_x *x, void (*fn)(int a));\nint td_high(void);\n",
    "a/low.c": '#include "a/shared.h"\nint td_low(int a) {\n    return a;\n}\n',
    "a/mid.c": '#include "a/shared.h"\nint td_mid(struct td_x *x,\n    void (*fn)(int a)) {\n    return td_low(1);\n}\n',
    "b/high.c": '#include "a/shared.h"\n#define TWICE td_high()\nint td_high(void) {\n    return td_mid(0, 0);\n}\n',
}


def found_calls(file, line):
    files = CALLS | {file: CALLS[file].replace("{\n", "{\n" + line + "\n")}
    return found_circles(files, joined=circles.joined_by_calls, what="calls")


@pytest.mark.parametrize("file, line, way", [
    ("a/mid.c", "", ""),
    ("a/low.c", "    td_mid(0, 0);", "a/low.c:3: a circle of calls: a/low.c -> a/mid.c -> a/low.c"),
    ("a/low.c", "    if (td_high()) a++;", "a/low.c:3: a circle of calls: a/low.c -> b/high.c -> a/mid.c -> a/low.c"),
    ("a/low.c", "    td_low(a);", ""),              # itself
    ("a/low.c", "    a = (int)td_mid_of(a);", ""),  # another name
    ("a/low.c", "    register_it(td_high);", ""),   # a handler
    ("a/low.c", "}\nint td_high(void);\nint more(int a) {", ""),
])
def test_circle_of_calls_is_named_and_a_declaration_is_no_call(file, line, way):
    assert found_calls(file, line) == ([way] if way else [])


def test_inline_function_of_a_header_is_called_too_and_a_name_of_several_files_is_nobodys():
    low = CALLS["a/low.c"].replace("{\n", "{\n    td_mid(0, 0);\n")
    assert len(found_circles(CALLS | {"a/low.c": low, "c/mid.c": CALLS["a/mid.c"]}, joined=circles.joined_by_calls)) == 0
    inline = {"a/quick.h": "static inline int td_quick(void) {\n    return td_mid(0, 0);\n}\n",
              "a/low.c": low.replace("td_mid(0, 0)", "td_quick()")}
    assert found_circles(CALLS | inline, joined=circles.joined_by_calls, what="calls") == [
        "a/low.c:3: a circle of calls: a/low.c -> a/quick.h -> a/mid.c -> a/low.c"]


# ---- names ------------------------------------------------------------------------------------------
ONCE = {
    "include/traind/module.h": "struct td_module;\ntypedef uint32_t td_value;\nstruct td_field {\n};\nint td_open(int a);\n",
    "workloads/mlp.c": '#include "traind/module.h"\nstruct td_module {\n};\nstatic struct td_module *td_of(void);\n',
    "workloads/gpt.c": "struct td_module {\n};\nint td_open(int a) {\n}\n",
    "lib/loop.h": "struct td_loop;\nstruct td_loop *td_loop_new(void);\ntypedef td_status (*build_step)(struct td_loop *l);\n",
    "lib/loop.c": "struct td_loop {\n};\nstruct td_loop *td_loop_new(void) {\n}\n",
}


def found_names(files):
    problems = []
    names.check(files, lambda path, line, text: problems.append(f"{path}:{line}: {text}"))
    return problems


def test_name_of_one_thing_is_fine():
    assert found_names(ONCE) == []


@pytest.mark.parametrize("file, text, words", [
    ("engine/loop.h", "\nstruct td_loop {\n};\n", "lib/loop.c:1: td_loop is another thing in engine/loop.h"),
    ("lib/other.c", "enum td_field {\n};\n", "lib/other.c:1: td_field is another thing in include/traind/module.h"),
    ("lib/other.c", "struct td_value {\n};\n", "lib/other.c:1: td_value is a type in include/traind/module.h"),
    ("lib/other.c", "struct td_module {\n};\n", "td_module is another thing in lib/other.c"),
    ("lib/other.h", "\nvoid td_loop_new(int other);\n", "lib/other.h:2: td_loop_new() is declared in lib/loop.h too"),
    ("lib/other.h", "typedef int td_value;\n", "lib/other.h:1: td_value is a type in include/traind/module.h"),
])
def test_name_of_two_things_is_named(file, text, words):
    found = found_names(ONCE | {file: text})
    assert found and any(words in x for x in found), found


# ---- lengths, private headers, stories -----------------------------------------------------------------
def test_file_above_600_lines_is_named(tree):
    for name, n in (("new.c", 601), ("fits.c", 600)):
        lint.check_length(name, "\n" * n)
    assert [p.split(":")[0] for p in lint.problems] == ["new.c"]


@pytest.mark.parametrize("path, header, ok", [
    ("engine/graph/passes/fuse.c", "engine/graph/graph.h", True),
    ("engine/train/plan/estimate.c", "engine/graph/graph.h", False),
    ("engine/train/rank/programs/record.c", "engine/graph/passes/passes.h", False),
    ("engine/graph/passes/autodiff.c", "engine/graph/rules/gradient.h", True),
    ("engine/graph/passes/fuse.c", "engine/graph/rules/gradient.h", False),
])
def test_header_that_a_folder_keeps_to_itself_is_not_included_from_outside(tree, path, header, ok):
    lint.check_private(path, 1, header)
    assert (lint.problems == []) == ok


@pytest.mark.parametrize("path, header, ok", [
    ("engine/train/loop/fit.c", "engine/train/rank/step.h", True),
    ("engine/train/loop/fit.c", "engine/train/plan/sizes.h", False),
    ("engine/train/rank/programs/record.c", "engine/train/plan/sizes.h", False),
    ("engine/train/checkpoint/best.c", "engine/train/rank/rank.h", False),
    ("engine/graph/rules/shape_conv.c", "engine/graph/passes/passes.h", False),
    ("daemon/worker/plan.c", "engine/train/loop/fit.h", False),
    ("daemon/worker/plan.c", "engine/train/plan/sizes.h", True),
])
def test_room_sees_those_below_it_alone(tree, path, header, ok):
    lint.check_layer(path, 1, header)
    assert (lint.problems == []) == ok


def test_story_that_leaves_a_file_out_is_named(tree, monkeypatch):
    monkeypatch.setattr(rooms, "STORIES", {"room/in": "room/room.h"})
    monkeypatch.setattr(rooms, "ROOT", tree)
    (tree / "room").mkdir()
    (tree / "room/room.h").write_text("// First one.h, then in/two.c, three.c, the rows.def, words and a_*.c.\nint other; // no xone.h\n")
    rooms.check(["room/room.h", "room/one.c", "room/rows.def", "room/words.c", "room/a_x.c", "room/in/two.c", "room/in/three.h",
                 "bare/x.c", "bare/y.c", "tests/unit/test_x.c", "tests/tools/lint.py"], lint.problem)
    assert [p.split("name")[-1] for p in lint.problems[1:]] == [" a file a_x", " a file words"]
    assert len(lint.problems) == 3 and lint.problems[0].startswith("bare:1: the folder wants a header of its name")


@pytest.mark.parametrize("paths, says", [
    ([f"room/f{i}.c" for i in range(24)] + ["room/f24.h"], ""),
    ([f"room/f{i}.c" for i in range(25)], "room:1: the folder has 25 sources, at most 24"),
    ([f"tests/scenario/test_s{i}.py" for i in range(25)], "tests/scenario:1: the folder has 25 sources"),
    (["room/one.h", "room/one.c"], "room:1: a room of one file needs a reason"),
    (["lib/loop/loop.h", "lib/loop/loop.c"], ""),
])
def test_room_is_neither_too_full_nor_for_one_file(tree, monkeypatch, paths, says):
    monkeypatch.setattr(rooms, "story_of", lambda folder, _: paths[0])
    monkeypatch.setattr(rooms, "ROOT", tree)
    (tree / paths[0]).parent.mkdir(parents=True, exist_ok=True)
    (tree / paths[0]).write_text("// " + " ".join(f"f{i}.c" for i in range(25)))
    rooms.check(paths, lint.problem)
    assert lint.problems == [] if not says else len(lint.problems) == 1 and lint.problems[0].startswith(says)


def test_path_that_leads_nowhere_is_named(tree):
    (tree / "docs/engine.md").write_text("See `docs/job-spec.md`,\n`engine/graph/gone.c` and engine/graph/pass_<name>.c, "
                                         "docs/*.md, https://docs/x.md.\n")
    lint.check_paths(["docs/engine.md", "docs/job-spec.md"])
    assert lint.problems == ["docs/engine.md:2: there is no engine/graph/gone.c"]


def test_every_page_that_people_write_is_held_to_the_prose_rules():
    pages = subprocess.run(["git", "ls-files", "*.md"], cwd=lint.ROOT, check=True, capture_output=True, text=True)
    assert sorted(lint.PROSE) == sorted(set(pages.stdout.split()) - set(lint.PRINTED_DOCS))


@pytest.mark.parametrize("text, n", [
    ('td_fail(X, "use CancelJob for it");', 1), ('td_fail(X, "ask the NodeService for it");', 1),
    ('call("/traind.v1.JobService/CancelJob");', 0), ('UNARY("CancelJob", x);', 0), ('td_fail(X, "Join the others");', 0),
    ('// CancelJob ends it', 0)])
def test_a_text_that_names_a_method_is_found(text, n):
    found = []
    said.check("x.c", text, lambda *what: found.append(what))
    assert len(found) == n


@pytest.mark.parametrize("body, n", [
    ('td_job_note(j, "it is; a %s", "lease here");', 1), ('td_events_note(e,\n "a full\\" ring; %d", x.part);', 1),
    ('char text[9];\n    (void)td_clip(text, 9, "its slot %d", 1);\n    say(g, text);', 1), ('note(l, r, "of td_ring_push() it");', 1),
    ('td_job_note(j, "its node has a partner: ringing");', 0), ('td_log_warn("its lease is over");', 0)])
def test_a_note_in_words_of_the_code_is_found(body, n):
    found = []
    said.check("x.c", f"static void f(struct x *x) {{\n    {body}\n}}\n", lambda *what: found.append(what))
    assert len(found) == n, found


def test_texts_that_become_notes_are_found_where_they_are_written():
    writers = {"engine/train/rank/state/resume.c": "lr_scheduler %s -> %s", "engine/train/rank/state/own_state.c": "cannot load the state",
               "engine/train/checkpoint/manifest.c": "world size %d -> %d", "engine/train/config/early_stop.c": "did not improve",
               "engine/train/loop/stage_weights.c": "is not on this node", "engine/train/plan/sizes.c": "no fast kernel",
               "lib/spec/plan.c": "a step takes about", "daemon/node/shell/attempts/forward.c": "was removed or cut",
               "daemon/launcher/loggers/logger.c": "logger cannot write",
               "daemon/coordinator/core/queue/queue.c": "all ranks run at CPU level", "client/run/follow.c": "was skipped"}
    for path, words in writers.items():
        notes = said.notes((lint.ROOT / path).read_text()).values()
        assert any(words in n for n in notes), (path, words, notes)
