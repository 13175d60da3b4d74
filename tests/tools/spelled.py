"""What is written in one file alone, for lint.py: elsewhere its text is not spelled out, in no string.

The key of an event is in lib/attempt, where each has a row; the names of outcomes are in one file, but a message for people
may be such a word; so is the name of a checkpoint's directory, for people written with an example ("a1/step-5") or a letter.
"""

import re

# What -> (its homes, its text in code without comments, what to do instead).
RULES = {
    "an event": (("lib/attempt/",), r"\\\"event\\\"|\"event\"", "use its row of lib/attempt/events.def"),
    "an outcome": (("lib/attempt/outcome.c", "lib/base/status.c"), r"\"(?:done|stopped|killed|failed)\"",
                   "use td_outcome_name or _parse (lib/attempt/outcome.c)"),
    "the name of a checkpoint": (("lib/attempt/checkpoint_name.c",), r"\"(?:[^\"\\\n]|\\.)*\bstep-[%*\"]",
                                 "use td_checkpoint_name_of, _path_of, _name_step or _path_parse (lib/attempt/checkpoint_name.h)"),
}
FOR_PEOPLE = re.compile(r"\b(?:td_log_\w+|td_fail)\s*\([^;]*$")


def check(path, code, problem):
    """code: without comments."""
    for what, (homes, text, instead) in RULES.items():
        if path.startswith(("tests/", *homes)):
            continue
        for m in re.finditer(text, code):
            statement = code[max(code.rfind(c, 0, m.start()) for c in ";{}"):m.start()]
            if what != "an outcome" or not FOR_PEOPLE.search(statement):
                problem(path, code.count("\n", 0, m.start()) + 1, f"{what} is spelled out: {instead}")
