"""Tests of prose.py: what counts as a sentence, a paragraph and a word of the glossary, and what does not."""
import prose
import pytest


def found(text):
    problems = []
    prose.check("x.md", text, lambda path, line, what: problems.append((line, what)))
    return problems


def words(n):
    return " ".join(["a"] * n)


def test_sentence_of_31_words_is_named_with_its_line():
    assert found(f"# Heading\n\n{words(30)}. {words(29)}.\n") == []
    (line, what), = found(f"# Heading\n\nShort.\n\n{words(31)}.\n")
    assert line == 5 and "31 words" in what


@pytest.mark.parametrize("glue", [": ", "; ", ", ", " i.e. ", " 1.5 "])
def test_sentence_does_not_end_at(glue):
    n = len(found(words(20) + glue + words(20) + ".\n"))
    assert n == 1


@pytest.mark.parametrize("end", [". ", "? ", "! ", ".) ", ".\n", "\n\n", "\n- ", "\n2. "])
def test_sentence_ends_at(end):
    assert found(words(20) + end + words(20) + "\n") == []


def test_cells_items_and_code_are_apart():
    assert found(f"| {words(20)} | {words(20)} |\n|---|---|\n| {words(30)} | a |\n") == []
    assert found(f"```\n{words(99)}\n```\n\n    {words(40)}\n") == []
    assert found(f"{words(29)} `{words(9)}`.\n") == []
    assert [line for line, _ in found(f"- a\n- {words(31)}\n")] == [2]


def test_paragraph_of_121_words_is_named():
    text = " ".join(["One two three four."] * 30)
    assert found(text.replace(". One", ".\nOne") + "\n") == []
    assert "121 words" in found((text + " More.").replace(". ", ".\n") + "\n")[0][1]


def test_long_line_is_named_but_not_of_a_table_or_of_code():
    row = "| " + "x" * 130 + " |\n"
    assert found(row + "```\n" + "x" * 130 + "\n```\n") == []
    assert "columns" in found("x" * 121 + "\n")[0][1]


@pytest.mark.parametrize("text", ["It lies behind.", "He told us.", "It stands there.", "Anew."])
def test_word_of_the_glossary_is_named(text):
    assert all("CONVENTIONS.md" in what for _, what in found(text)) and found(text)


@pytest.mark.parametrize("text", ["`behind`", "B stands for batch.", "Nobody can tell apart.", "## Behind\n", "believes"])
def test_word_that_only_looks_so_is_not(text):
    assert found(text) == []


def in_comments(text):
    problems = []
    prose.check_comments("x.c", text, lambda path, line, what: problems.append((line, what)))
    return problems


def test_word_of_the_glossary_in_a_comment_is_named_with_its_line():
    (line, what), = in_comments('int a;\nint b; // told "so", "x"\n')
    assert line == 2 and "told" in what
    assert [line for line, _ in in_comments("// It\n// lies behind\n")] == [2, 2]


@pytest.mark.parametrize("text", ['f("behind", "//"); int told;', 'f("// told");', "// `told`, \"told\"", "// B stands\n// for batch",
                                  "// nobody can tell", "puts('\"'); // fine\n"])
def test_word_that_is_no_comment_is_not(text):
    assert in_comments(text) == []


def test_sentence_of_31_words_in_a_comment_is_named_with_its_first_line():
    assert in_comments(f"int a;\n// {words(20)}\n// {words(10)}. {words(29)}.\nint b;\n") == []
    (line, what), = in_comments(f"int a;\n// Short.\n//\n    // {words(20)}\n    // {words(11)}.\nint b;\n")
    assert line == 4 and "31 words" in what


@pytest.mark.parametrize("end", ["//\n// ", "\n// ", "//  indented\n// ", "int a;\n// ", "int a; // at its end\n// "])
def test_paragraph_of_a_comment_ends_at(end):
    assert in_comments(f"// {words(20)}\n{end}{words(20)}\n") == []


def test_indented_lines_and_comments_after_code_are_no_sentences():
    assert in_comments(f"//  {words(40)}\nint a; // {words(40)}\n") == []
    assert in_comments(f"//   {words(20)}\n//   {words(20)}\n") == []


def test_span_in_a_comment_is_one_word():
    assert in_comments(f"// {words(29)} `{words(9)}`.\n") == []
    assert "31 words" in in_comments(f"// {words(30)}\n// `{words(9)}`.\n")[0][1]
