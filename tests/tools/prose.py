"""Length of sentences and paragraphs, and the glossary, in the docs (CONVENTIONS.md, Prose).

lint.py calls check() for the files of PROSE, and check_comments(), sentences and the glossary, for every file of C.
Counted is what a reader reads as text: paragraphs, items of lists, each cell of a table. Lines of a comment that are
indented are a list or a table, and each is text of its own. Code blocks, HTML comments and headings are left out; a `code span` is one word, whatever is
in it. A sentence ends with . ! or ? before a space, or with its paragraph. A colon or semicolon does not end one, nor
does a point between two digits or in "i.e.".
"""

import re

MAX_SENTENCE_WORDS = 30
MAX_PARAGRAPH_WORDS = 120
MAX_COLUMNS = 120

# Word -> what to say instead. Whole words of the text, not of code spans.
GLOSSARY = {
    r"behind": "after",
    r"anew": "again",
    r"foretell|foretells|foretold": "predict",
    r"hear|hears|heard": "receive",
    r"(?<!can )(?<!cannot )tells?|told": "report, or say",
    r"lies": "is",
    r"stands?(?! for)": "is",
}


def blocks(text):
    """(line number, text) of each paragraph, item of a list and cell of a table."""
    found, first, words, code = [], 0, [], False
    text = re.sub(r"<!--.*?-->", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)
    for number, line in enumerate([*text.splitlines(), ""], 1):
        fence = line.lstrip().startswith("```")
        code ^= fence
        item, row = re.match(r" *(?:[-*]|\d+\.) ", line), line.lstrip().startswith("|")
        skipped = fence or code or not line.strip() or line.startswith("#") or not words and line.startswith("    ")
        if words and (skipped or item or row):
            found.append((first, " ".join(words)))
            words = []
        if row and not code:
            found += [(number, cell.strip()) for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1] if cell.strip(" -:")]
        elif not skipped:
            first = first if words else number
            words.append(line[item.end():] if item else line.strip())
    return found


def plain(text):
    """The text with each code span as one word, without marks of stress and targets of links."""
    return re.sub(r"\]\([^)]*\)", "]", re.sub(r"\*\*|\*", "", re.sub(r"`[^`]*`", "code", text)))


def sentences(text):
    return re.split(r"(?<=[^.\d\s][.!?])(?<!\b\w\.\w\.)\)?[\"']?\s+|(?<=\d[.!?])\s+", text)


def n_words(text):
    return len(re.findall(r"[^\s]*\w[^\s]*", text))


def check_words(path, text, problem):
    """The glossary alone: of a page that a program prints, whose cells are as long as they are."""
    for number, block in blocks(text):
        for word, better in GLOSSARY.items():
            if m := re.search(rf"\b(?:{word})\b", plain(block), re.I):
                problem(path, number, f"\"{m[0]}\": say {better} (CONVENTIONS.md, Prose)")


def check(path, text, problem):
    check_words(path, text, problem)
    code = False
    for number, line in enumerate(text.splitlines(), 1):
        code ^= line.lstrip().startswith("```")
        if len(line) > MAX_COLUMNS and not code and not line.lstrip().startswith("|"):
            problem(path, number, f"the line has {len(line)} columns, at most {MAX_COLUMNS}")
    for number, block in blocks(text):
        words = plain(block)
        if n_words(words) > MAX_PARAGRAPH_WORDS:
            problem(path, number, f"the paragraph has {n_words(words)} words, at most {MAX_PARAGRAPH_WORDS}")
        for sentence in sentences(words):
            if n_words(sentence) > MAX_SENTENCE_WORDS:
                problem(path, number, f"the sentence \"{sentence[:40]}...\" has {n_words(sentence)} words, "
                        f"at most {MAX_SENTENCE_WORDS}")


def comments(text):
    """(line number, text) of each // comment, with the first two words of a comment in the next line: "stands" is
    another word before "for"."""
    strings = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'")
    found = [re.search(r"//(.*)", line if line.lstrip().startswith("//") else strings.sub("", line))
             for line in text.splitlines()]
    for number, (m, after) in enumerate(zip(found, [*found[1:], None]), 1):
        if m:
            yield number, m[1], " ".join((after[1] if after else "").split()[:2])


def paragraphs(text):
    """(line number, text) of each paragraph of // comments that have lines of their own."""
    first, words = 0, []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        m = re.match(r"\s*//( *)(.*)", line)
        goes_on = m and m[2] and len(m[1]) <= 1
        if words and not goes_on:
            yield first, " ".join(words)
            words = []
        if goes_on:
            first = first if words else number
            words.append(m[2].strip())


def check_comments(path, text, problem):
    for number, block in paragraphs(text):
        for sentence in sentences(plain(block)):
            if n_words(sentence) > MAX_SENTENCE_WORDS:
                problem(path, number, f"the sentence \"{sentence[:40]}...\" has {n_words(sentence)} words, "
                        f"at most {MAX_SENTENCE_WORDS}")
    for number, comment, after in comments(text):
        quoted = re.sub(r"\"[^\"]*\"|`[^`]*`", "code", comment)
        for word, better in GLOSSARY.items():
            m = re.search(rf"\b(?:{word})\b", f"{quoted} {after}", re.I)
            if m and m.start() < len(quoted):
                problem(path, number, f"\"{m[0]}\": say {better} (CONVENTIONS.md, Prose)")
