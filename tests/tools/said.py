"""What the programs say to people is in words that people have (CONVENTIONS.md, Prose). lint.py calls check() for
every file of C.

No text names a method of gRPC, such as CancelJob: people know verbs of trainctl. It is looked for in each string that
is a sentence: one with a space. Paths of methods ("/traind.v1.JobService/GetJob") are code and have none.

No note of a job has a word that only the code has. Notes are what `trainctl describe` and `--follow` print as such: the
strings of each function that makes one, and of those that write the text of one (WRITES_NOTE).
"""
import functools
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
FUNCTION = re.compile(r"^[a-z][^;{}()#]*?(\w+)\([^;{]*\{\n(?:(?!\}).*\n)*\}", re.M)
MAKES_NOTE = re.compile(r"\b(?:td_events_note|td_event_note_text|td_job_note)\(|\b(?:note|refuse|say)\([fgl], ")
WRITES_NOTE = re.compile(r"\w*compare(?:_\w+)?|find_best|say_lost|td_early_stop_say|td_plan_say_precision|td_sizes_say_slow")

# A word of a note -> what to say instead.
CODE_WORDS = {
    r"arenas?|regions?|scratch": "memory",
    r"boundar(?:y|ies)": "step, or checkpoint",
    r"catalog": "list of checkpoints",
    r"commit(?:s|ted)?": "saved",
    r"fence[sd]?|gangs?|leases?|sessions?": "what became of the node",
    r"frames?|protocol": "version of traind",
    r"journals?|segments?|rings?|metric points?": "metrics, or log",
    r"parts?|shards?|slots?": "ranks of a node, file, or device",
    r"passed over": "skipped",
    r"td_\w+|TD_\w+|\w+\(\)|\w+\.[ch]": "what it does",
}


@functools.cache
def names():
    found = {name for proto in ROOT.glob("proto/traind/v1/*.proto") for name in re.findall(r"\brpc (\w+)", proto.read_text())}
    return re.compile(rf"\b(?:{'|'.join(sorted(n for n in found if re.match('[A-Z][a-z]+[A-Z]', n)))}|\w+Service)\b")


def notes(text):
    """Place -> text of each string of a file that is a note, or a piece of one."""
    found = [m for m in FUNCTION.finditer(text) if MAKES_NOTE.search(m[0]) or WRITES_NOTE.fullmatch(m[1])]
    return {m.start() + s.start(): s[1] for m in found for s in STRING.finditer(m[0]) if " " in s[1]}


def check(path, text, problem):
    def at(place):
        return text.count("\n", 0, place) + 1

    for m in STRING.finditer(text):
        named = " " in m[1] and not text.endswith("#include ", 0, m.start()) and names().search(m[1])
        if named:
            problem(path, at(m.start()), f"a text names the method {named[0]}: name what a person does")
    for place, said in ({} if path.startswith("tests/") else notes(text)).items():
        for word, better in CODE_WORDS.items():
            if m := re.search(rf"\b(?:{word})(?!\w)", said):
                problem(path, at(place), f'a note says "{m[0]}", a word of the code: say {better}')
