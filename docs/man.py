#!/usr/bin/env python3
"""Writes the manual pages from what the programs say of themselves: traind.8, trainctl.1, traind-job.5, and those of the
programs that these start.

usage: man.py BUILD_FOLDER OUTPUT_FOLDER

Nothing is written twice: settings come from daemon/params.def, verbs and flags from `trainctl --help`, keys of a job
from `traind --dump-spec`. What is here is only how they become roff.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
STRING = r'"((?:[^"\\]|\\.)*)"'


def roff(text):
    """Text that means itself: backslashes, dashes that are dashes, no request at the start of a line."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + line if line[:1] in (".", "'") else line for line in text.splitlines())


def inline(markdown):
    """`code` and *stress* of the job spec's reference; of a link, its text."""
    parts = re.split(r"`([^`]*)`", re.sub(r"\[([^\[\]]*)\]\([^()]*\)", r"\1", markdown))
    return "".join(rf"\fB{roff(p)}\fR" if i % 2 else re.sub(r"\*([^*]+)\*", r"\\fI\1\\fR", roff(p))
                   for i, p in enumerate(parts))


def page(name, section, summary, body):
    return f'.TH {name.upper()} {section} "" "{VERSION}" "traind"\n.SH NAME\n{name} \\- {roff(summary)}\n{body}'


def said(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


# ---- traind.8 ------------------------------------------------------------------------------------
def settings():
    rows = (ROOT / "daemon/params.def").read_text()
    found = list(re.finditer(rf"^TD_PARAM_(STR|INT)\(\w+((?:,\s*\.\w+ = (?:\d+|{STRING}(?:\s*{STRING})*))+)\)$", rows, re.M))
    if len(found) != len(re.findall(r"^TD_PARAM", rows, re.M)):
        sys.exit("params.def: a row that this program does not understand")
    for row in found:
        columns = {m[1]: m[2] or "".join(re.findall(STRING, m[3]))
                   for m in re.finditer(rf"\.(\w+) = (?:(\d+)|((?:{STRING}\s*)+))", row[2])}
        flag, env, prose = columns["flag"], columns.get("env", ""), columns["prose"]
        if row[1] == "STR":
            yield f"{flag}=X", env, columns.get("text_def", ""), prose
        else:
            yield f"{flag}=N", env, "{def}; {min} to {max} {unit}".format(**columns), prose


EXAMPLES = """  traind &                                    all of it, on this machine
  traind --role coordinator --listen 0.0.0.0:7070
  TRAIND_ADDRESS=host:7070 traind --role node
  traind --dump-config                        every setting, its value and where it comes from"""


def traind():
    body = (".SH SYNOPSIS\n\\fBtraind\\fR [\\fIOPTION\\fR...]\n.SH DESCRIPTION\n" + roff(
        "Trains what it is given. Without options it is coordinator and node in one, on a loopback address of its own "
        "choice, with its state in $TRAIND_STATE_DIR, $XDG_STATE_HOME/traind or, for root, /var/lib/traind.") +
        "\n.SH OPTIONS\n")
    for flag, env, default, prose in settings():
        more = [f"Default: {default}."] * bool(default) + [f"Environment: {env}."] * bool(env)
        body += f".TP\n\\fB\\-\\-{roff(flag)}\\fR\n{roff(prose)}. {roff(' '.join(more))}\n"
    for flag, prose in (("salvage", "start with what is readable of a damaged state.db, list what is not"), ("dump-config", "print every setting and end"), ("dump-spec", "print the reference of the job spec and end"),
                        ("dump-events", "print the reference of events.log and end"),
                        ("dump-languages", "print the numbers of what this build says to others and end")):
        body += f".TP\n\\fB\\-\\-{roff(flag)}\\fR\n{roff(prose)}\n"
    body += ".SH EXAMPLES\n" + example(EXAMPLES) + (".SH SIGNALS\n" + roff(
        "SIGTERM and SIGINT end the daemon. Role all stops its ranks with a checkpoint first, and the next start goes on; "
        "role node leaves them running, to be adopted by the next one. A second signal ends it at once. "
        "SIGUSR1 makes all ranks of this machine save a checkpoint and go on.") +
        "\n.SH FILES\n" + roff("In the state directory: token (the owner's credential), address (HOST:PORT, once it listens), "
                             "state.db, metrics.db, audit.log, attempts, checkpoints, logs.") +
        "\n.SH SEE ALSO\n.BR trainctl (1),\n.BR traind\\-job (5)\n")
    return page("traind", 8, "daemon that trains what it is given: coordinator, node, or both", body)


# ---- trainctl.1 ----------------------------------------------------------------------------------
def example(text):
    return f".nf\n{roff(text)}\n.fi\n"


def trainctl(program):
    text = said(program, "--help")
    verbs = re.findall(r"^  ([a-z]+(?: [a-z]+)*)  +(\S.*(?:\n {20,}.*)*)$", text[:text.index("\nENVIRONMENT")], re.M)
    body = ".SH SYNOPSIS\n\\fBtrainctl\\fR \\fIVERB\\fR [\\fIARGUMENT\\fR...] [\\fIFLAG\\fR...]\n.SH VERBS\n"
    for verb, prose in verbs:
        own = said(program, *verb.split(), "--help")
        args = re.match(r"Usage: trainctl .*\[OPTION\.\.\.\] ?(.*)", own)[1]
        body += f".SS {roff(f'{verb} {args}'.strip())}\n{roff(' '.join(prose.split()))}\n"
        flags, _, examples = own.partition("\nEXAMPLES\n")
        for flag, meaning in re.findall(r"^ {2,6}(-\S.*?)(?:  +|\n {20,})(\S.*(?:\n {29}.*)*)$", flags, re.M):
            if "--help" not in flag and "--usage" not in flag:
                body += f".TP\n\\fB{roff(flag)}\\fR\n{roff(' '.join(meaning.split()))}\n"
        if examples:
            body += ".PP\nExamples:\n" + example(examples.rstrip())
    common = text[text.index("\nFLAGS OF EVERY VERB"):text.index("\nENVIRONMENT")]
    body += ".SH OPTIONS\nOf every verb.\n"
    for flag, meaning in re.findall(r"^  (--\S+) +(\S.*(?:\n {20,}.*)*)$", common, re.M):
        body += f".TP\n\\fB{roff(flag)}\\fR\n{roff(' '.join(meaning.split()))}\n"
    environment, _, codes = text[text.index("\nENVIRONMENT"):].partition("\nExit codes:")
    body += ".SH ENVIRONMENT\nA flag wins over its variable.\n"
    for name, prose in re.findall(r"^  ([A-Z_]+) +(\S.*)$", environment, re.M):
        body += f".TP\n\\fB{name}\\fR\n{roff(prose)}\n"
    body += ".SH EXIT STATUS\n" + roff("Exit codes:" + codes.rstrip()) + "\n"
    return page("trainctl", 1, "submit, follow and steer jobs of traind",
                body + ".SH SEE ALSO\n.BR traind (8),\n.BR traind\\-job (5)\n")


# ---- traind-job.5 --------------------------------------------------------------------------------
def key(row):
    name, takes, default, unit, meaning = row
    unit = f" ({unit})" if unit else ""
    default = "Required." if default == "required" else f"Default: {default}."
    return f".TP\n{inline(name)}\n{inline(meaning)}.\nTakes {inline(takes)}{roff(unit)}. {inline(default)}\n"


def converted(markdown):
    body = ""
    for line in markdown.splitlines():
        cells = [c.strip().replace("\\|", "|") for c in re.split(r"(?<!\\)\|", line)[1:-1]]
        if line.startswith("### "):
            body += f".SS {inline(line[4:]).replace('`', '')}\n"
        elif line.startswith("## "):
            body += f".SH {inline(line[3:]).upper() if '`' not in line else inline(line[3:])}\n"
        elif len(cells) == 5 and cells[0] != "key" and not cells[0].startswith("---"):
            body += key(cells)
        elif line.startswith("- "):
            body += f".IP \\(bu 2\n{inline(line[2:])}\n"
        elif line and not cells and not line.startswith("<!--"):
            body += f"{inline(line.strip())}\n" if line.startswith("  ") else f"{inline(line)}\n"
        elif not line:
            body += ".PP\n"
    return body


def job(program):
    reference = said(program, "--dump-spec").partition("\n")[2]
    reference = re.sub(r"^## Contents\n.*?(?=^## )", "", reference, flags=re.M | re.S)  # links lead nowhere here
    parts = re.split(r"^```(?:yaml)?\n", reference, flags=re.M)
    body = ".SH DESCRIPTION\n" + "".join(example(p.rstrip()) if i % 2 else converted(p) for i, p in enumerate(parts))
    return page("traind-job", 5, "what a job of traind is made of", body + ".SH SEE ALSO\n.BR trainctl (1)\n")


# ---- what is started by others -------------------------------------------------------------------
HELPERS = (("traind-run", 1, "train a job in the foreground, without a daemon"),
           ("traind-launcher", 8, "hold the ranks of one attempt of a job of traind"),
           ("traind-worker", 8, "train one rank of a job of traind"))


def helper(program, name, section, summary):
    ran = subprocess.run([program, "--help"], capture_output=True, text=True)  # the launcher's exit code is of wrong usage
    text = (ran.stdout or ran.stderr).partition("\nMandatory or optional")[0]
    return page(name, section, summary, ".SH DESCRIPTION\n" + example(text.rstrip()) +
                ".SH SEE ALSO\n.BR trainctl (1),\n.BR traind (8)\n")


if __name__ == "__main__":
    programs, out = pathlib.Path(sys.argv[1]).resolve() / "bin", pathlib.Path(sys.argv[2])
    VERSION = said(programs / "traind", "--version").strip()
    out.mkdir(parents=True, exist_ok=True)
    for file, text in (("traind.8", traind()), ("trainctl.1", trainctl(programs / "trainctl")), ("traind-job.5", job(programs / "traind"))):
        (out / file).write_text(text)
    for name, section, summary in HELPERS:
        (out / f"{name}.{section}").write_text(helper(programs / name, name, section, summary))
