"""CONVENTIONS.md shows C that compiles here, in the format of the tree: each snippet in a frame of what it takes for given."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import braces  # noqa: E402
import lint  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ["-std=c17", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Wno-sign-conversion",
         "-Wstrict-prototypes", "-Wmissing-prototypes", "-Wcast-qual", "-Wwrite-strings", "-Werror", "-Wno-unused",
         "-fsyntax-only", f"-I{ROOT}/include", f"-I{ROOT}", "-x", "c", "-"]
# A word of the snippet -> what comes before and after it.
FRAMES = {
    "td_shard_reader_create": ("""#include <fcntl.h>
#include "lib/base/base.h"
struct td_shard_reader {
    uint32_t magic;
    int fd;
};
enum { td_shard_reader_magic = 0x53485244 };
static void td_shard_reader_destroy(struct td_shard_reader *r) {
    free(r);
}
TD_DEFINE_AUTO(td_shard_reader, td_shard_reader_destroy);
td_status td_shard_reader_create(const char *path, struct td_shard_reader **out_reader);
""", ""),
    "td_rank_restore": ("""#include <inttypes.h>
#include "lib/base/base.h"
struct store;
struct manifest {
    int64_t step;
};
struct rank {
    int idx;
};
td_status td_manifest_read(const struct store *s, int64_t step, struct manifest *out_manifest);
td_status td_rank_restore(struct rank *r, const struct manifest *m);
static td_status restore(const struct store *store, struct rank *rank, int64_t step) {
    struct manifest manifest;
""", "    return TD_OK;\n}\n"),
    "rank_table": ("""#include "lib/base/base.h"
struct rank;
typedef void rank_action(struct rank *r);
static void on_hello(struct rank *r) {
}
static void on_lost(struct rank *r) {
}
enum rank_state { RS_JOINING, RS_COUNT };
enum rank_event { RE_HELLO, RE_EXIT, RE_COUNT };
""", ""),
    "td_collective_mean": ("""#include "lib/base/base.h"
struct td_collective;
""", ""),
}


def snippets():
    return re.findall(r"^```c\n(.*?)^```$", (ROOT / "CONVENTIONS.md").read_text(), re.M | re.S)


def framed(snippet):
    found = [frame for word, frame in FRAMES.items() if word in snippet]
    assert len(found) == 1, f"FRAMES knows no frame, or several, for\n{snippet}"
    return found[0]


def compile_c(code):
    return subprocess.run([*os.environ.get("CC", "gcc").split(), *FLAGS], input=code, capture_output=True, text=True)


def test_there_is_a_frame_for_every_snippet():
    assert len(snippets()) == len(FRAMES)


@pytest.mark.parametrize("snippet", snippets(), ids=lambda s: max(re.findall(r"\w+", s), key=len))
def test_snippet_compiles_and_has_the_style_of_the_tree(snippet, monkeypatch):
    before, after = framed(snippet)
    done = compile_c(before + snippet + after)
    assert done.returncode == 0, done.stderr
    monkeypatch.setattr(lint, "problems", [])
    lint.check_one_way("lib/x.c", snippet)
    lint.check_banned("lib/x.c", lint.without_strings(lint.without_comments(snippet)))
    braces.check("lib/x.c", snippet, lint.problem)
    assert lint.problems == []
    version = subprocess.run(["clang-format", "--version"], capture_output=True, text=True).stdout \
        if shutil.which("clang-format") else ""
    if " version 14." in version:  # the format of the tree is that of one version (Makefile)
        done = subprocess.run(["clang-format", "--assume-filename", ROOT / "lib/x.c"], input=snippet, text=True,
                              capture_output=True, check=True)
        assert done.stdout == snippet


def test_snippet_that_does_not_compile_is_noticed():
    snippet = snippets()[0]
    before, after = framed(snippet)
    assert compile_c(before + snippet.replace("td_fail_oom()", "NULL + self") + after).returncode != 0
