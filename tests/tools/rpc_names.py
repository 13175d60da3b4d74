"""No text of the programs names a method of gRPC: people know verbs of trainctl (CONVENTIONS.md, Prose).

lint.py calls check() for every file of C. A name of two words or more, such as CancelJob, is looked for in each string
that is a sentence: one with a space. Paths of methods ("/traind.v1.JobService/GetJob") are code and have none.
"""
import functools
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


@functools.cache
def names():
    found = {name for proto in ROOT.glob("proto/traind/v1/*.proto") for name in re.findall(r"\brpc (\w+)", proto.read_text())}
    return re.compile(rf"\b(?:{'|'.join(sorted(n for n in found if re.match('[A-Z][a-z]+[A-Z]', n)))}|\w+Service)\b")


def check(path, text, problem):
    for m in re.finditer(r'"((?:[^"\\\n]|\\.)*)"', text):
        named = " " in m[1] and not text.endswith("#include ", 0, m.start()) and names().search(m[1])
        if named:
            problem(path, text.count("\n", 0, m.start()) + 1, f"a text names the method {named[0]}: name what a person does")
