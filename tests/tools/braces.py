#!/usr/bin/env python3
"""Braces always, except for a guard on one line: finds what has none, and with --fix gives it some.

    braces.py [--fix] FILE...        afterwards: make format

The body of if, else, for and while is in braces, unless an `if` without else fits one line with its body. clang-format 14
can break lines, but not add braces. lint.py calls check().
"""
import re
import sys
from pathlib import Path

HEAD = re.compile(r"(?<![\w#])(if|for|while|else|do|switch)\b")
DIRECTIVE = re.compile(r"^[ \t]*#(?!\s*define)[^\n]*", re.M)
MACRO = re.compile(r"^[ \t]*#\s*define(?:[^\\\n]|\\\n|\\.)*\n", re.M)
MASKED = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)


def masked(code):
    """As long as the code, without comments, text, directives and the ends of a macro's lines."""
    blank = lambda m: re.sub(r"[^\n]", " ", m[0])
    text = DIRECTIVE.sub(blank, MASKED.sub(blank, code))
    text = MACRO.sub(lambda m: m[0][:-1] + ";", text)  # a macro ends where its lines do
    return text.replace("\\\n", " \n")


class Reader:
    """Walks statements and notes the bodies without braces: (begin, end, head)."""

    def __init__(self, code):
        self.text, self.found = masked(code), []

    def skip(self, at):
        while at < len(self.text) and self.text[at].isspace():
            at += 1
        return at

    def closed(self, at):
        """After the bracket that closes the one here."""
        depth = 0
        for i in range(at, len(self.text)):
            depth += (self.text[i] in "({[") - (self.text[i] in ")}]")
            if depth == 0:
                return i + 1
        return len(self.text)

    def simple(self, at):
        """After the semicolon of a statement that is no compound one."""
        while at < len(self.text) and self.text[at] not in ";}":
            at = self.closed(at) if self.text[at] in "({[" else at + 1
        return at + 1 if at < len(self.text) and self.text[at] == ";" else at

    def body(self, head, at, guard):
        """After the body that begins here. guard: it may do without braces on the line of its head."""
        begin = self.skip(at)
        end = self.statement(begin)
        bare = begin < len(self.text) and self.text[begin] != "{" and not (head == "else" and self.text.startswith("if", begin))
        if bare and not (guard and "\n" not in self.text[guard - 1:end]):
            self.found.append((at, end))
        return end

    def statement(self, at):
        at = self.skip(at)
        if at >= len(self.text):
            return at
        if self.text[at] == "{":
            end, inner = self.closed(at), at + 1
            while inner < end - 1:
                inner = max(self.statement(inner), inner + 1)
            return end
        m = HEAD.match(self.text, at)
        if not m:
            return self.simple(at)
        if m[1] in ("else", "do"):
            end = self.body(m[1], m.end(), 0)
            return self.simple(end) if m[1] == "do" else end
        after = self.skip(m.end())
        if after >= len(self.text) or self.text[after] != "(":
            return self.simple(at)  # a word in a macro that only looks like one
        closed = self.closed(after)
        if self.text[self.skip(closed):self.skip(closed) + 1] == ";" and m[1] != "if":
            return self.simple(closed)  # a loop without a body
        if m[1] != "if":
            return self.body(m[1], closed, 0)
        n = len(self.found)
        end = self.body("if", closed, at + 1)
        other = self.skip(end)
        if re.match(r"else\b", self.text[other:other + 5]):
            del self.found[n:]
            self.body("if", closed, 0)
            return self.statement(other)
        return end

    def all(self):
        """Bodies in order, each once; functions in macros are found by the heads in them."""
        at, seen = 0, set()
        while m := HEAD.search(self.text, at):
            at = m.end()
            if m[1] != "else" and not (m[1] == "while" and self.ends_do(m.start())):  # read with what they end
                self.statement(m.start())
        for place in self.found:
            seen.add(place)
        return sorted(seen)

    def ends_do(self, at):
        """The while here is the end of a do."""
        at = len(self.text[:at].rstrip()) - 1
        if self.text[at] != "}":
            return False
        depth = 0
        while at >= 0:
            depth += (self.text[at] == "}") - (self.text[at] == "{")
            if depth == 0:
                return bool(re.search(r"\bdo\s*$", self.text[max(0, at - 80):at]))
            at -= 1
        return False


def check(path, code, problem):
    for begin, _ in Reader(code).all():
        problem(path, code.count("\n", 0, begin) + 1,
                "a body without braces that is no guard on one line (tests/tools/braces.py --fix, then make format)")


def fixed(code):
    inserts = []
    for begin, end in Reader(code).all():
        line_end = code.find("\n", end)
        rest = code[end:line_end]
        macro = code[:line_end].endswith("\\")
        if not macro and re.fullmatch(r"[ \t]*(//.*)?", rest):
            end = line_end
        inserts += [(begin, 0, " {"), (end, 1, " }" if macro else "\n}")]
    for at, _, text in sorted(inserts, key=lambda x: (-x[0], -x[1])):
        code = code[:at] + text + code[at:]
    return code


def main():
    fix = "--fix" in sys.argv
    n = 0
    for name in [x for x in sys.argv[1:] if x != "--fix"]:
        code = Path(name).read_text()
        if fix:
            new = fixed(code)
            if new != code:
                Path(name).write_text(new)
        check(name, Path(name).read_text(), lambda path, line, text: print(f"{path}:{line}: {text}"))


if __name__ == "__main__":
    main()
