"""Pages beside the tutorials: messages that are listed are messages of the programs, commands are commands."""
import re
import shlex
import subprocess

import pytest

from support import BIN, ROOT

TROUBLE = (ROOT / "docs/troubleshooting.md").read_text()
SHEET = (ROOT / "docs/cheat-sheet.md").read_text()


@pytest.fixture(scope="module")
def texts():
    """All strings of the programs, each as one: a literal that goes on in the next line is one text."""
    found = []
    for folder in ("client", "daemon", "engine", "fabric", "lib", "workloads", "strategies", "collectives", "comm_hooks",
                   "precisions"):
        for path in (ROOT / folder).rglob("*.[ch]"):
            code = re.sub(r"(?m)^\s*//.*$| // .*$", "", path.read_text(errors="replace"))  # no message is a comment
            code = re.sub(r'"\s*(?:PRI\w+\s*)?\n?\s*"', "", code)
            found.append(code)
    return "\n".join(found)


def rows(title):
    section = TROUBLE[TROUBLE.index(f"## {title}"):].split("\n## ")[0]
    return [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("|")][2:]


@pytest.mark.parametrize("title", ["No daemon, no access", "A node that does not come", "A spec that is refused", "A job that waits", "It works, but", "A note of a job"])
def test_messages_are_those_of_the_programs(texts, title):
    for message in rows(title):
        quoted = re.fullmatch(r"`([^`]+)`", message)
        parts = [p.strip(" ,:") for p in quoted[1].split("...")] if quoted else []
        # strerror's words are the C library's
        assert all(p.partition(": No such file")[0] in texts for p in parts), message


def test_messages_of_a_daemon_that_ends_are_listed(texts):
    said = set(re.findall(r'td_fail\(TD_UNAVAILABLE,\s*"([^"]* (?:is stopping|is shutting down)[^"]*)"', texts))
    assert len(said) >= 2
    for message in said:
        assert any(row.strip("`") in message for row in rows("No daemon, no access")), message


def classes():
    found = re.findall(r'\[TD_CLASS_\w+\]\s*=\s*"(\w+)"|TD_CLASS\(\w+, "?(\w+)', (ROOT / "lib/base/status.c").read_text())
    return {a or b for a, b in found} - {"none", "cancelled"}


def test_each_class_has_its_row_and_its_section():
    section = TROUBLE[TROUBLE.index("## A job that failed"):].split("\n## ")[0]
    listed = re.findall(r"^\| \[`(\w+)`\]\(#(\w+)\) \|", section, re.M)
    headings = re.findall(r"^### (\w+)$", section, re.M)
    assert classes() and {name for name, _ in listed} == {link for _, link in listed} == set(headings) == classes()
    assert [name for name, _ in listed] == headings


@pytest.mark.parametrize("name", sorted(classes()))
def test_messages_of_a_class_are_those_of_the_programs(texts, name):
    section = TROUBLE[TROUBLE.index(f"\n### {name}\n"):].split("\n## ")[0].split("\n### ")[1]
    messages = re.findall(r"^\| `([^`]+)` \|", section, re.M)
    assert messages
    for message in messages:
        assert all(p.strip(" ,:") in texts for p in message.split("...")), message


def commands():
    for code in re.findall(r"`(trainctl [^`]+)`", SHEET):
        yield code


@pytest.mark.parametrize("command", commands())
def test_commands_of_the_sheet_are_commands(command):
    words = shlex.split(command.removeprefix("source <(").rstrip(")"))[1:]
    verb = words[:2] if words[0] in ("checkpoint", "token", "context", "node", "cluster") else words[:1]
    help_text = subprocess.run([BIN / "trainctl", *verb, "--help"], check=True, capture_output=True, text=True).stdout
    for flag in [w for w in words if re.match(r"-\w|--\w", w)]:
        assert re.search(rf"(?<!\S){flag.split('=')[0]}(?=[ ,=\n])", help_text), flag


def test_the_sheet_is_one_page_and_its_job_is_one():
    assert len(SHEET.splitlines()) < 60
    spec = re.search(r"```yaml\n(.*?)```", SHEET, re.S)[1]
    assert spec.startswith("name: mine")


def test_the_job_of_the_sheet_is_taken(daemon):
    spec = re.search(r"```yaml\n(.*?)```", SHEET, re.S)[1]
    assert "mine" in daemon.validated(spec)


def test_pages_are_linked_from_the_readme():
    readme = (ROOT / "README.md").read_text()
    for page in ("docs/tutorials/README.md", "docs/troubleshooting.md", "docs/cheat-sheet.md", "docs/figures.md", "docs/recipes.md"):
        assert page in readme and (ROOT / page).exists()


def test_contents_of_the_job_spec_lead_to_its_headings():
    text = (ROOT / "docs/job-spec.md").read_text()
    links = re.findall(r"\]\(#([^)]+)\)", text[text.index("## Contents"):text.index("## Top level")])
    anchor = lambda heading: re.sub(r"[^a-z0-9_ -]", "", heading.lower()).replace(" ", "-")
    headings = {anchor(h) for h in re.findall(r"^#{2,3} (.*)$", text, re.M)}
    assert len(links) > 60 and set(links) <= headings, set(links) - headings
    assert {h for h in headings if not h.startswith(("each-of", "contents"))} <= set(links)
