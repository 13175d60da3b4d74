"""Reads docs/lightning.md: its tables, and which tests a row names."""
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/lightning.md"


def tables(text):
    """Heading -> rows, each a list of cells."""
    found, heading = {}, None
    for line in text.splitlines():
        if line.startswith("## "):
            heading = line[3:]
        elif line.startswith("| ") and heading:
            found.setdefault(heading, []).append([c.strip() for c in line.strip("|").split("|")])
    return {h: rows[1:] for h, rows in found.items()}


def words(cell):
    return re.findall(r"`([^`]+)`", cell)


def tests_of(name, text):
    """The tests of the row "<table>/<method>": "path::case"."""
    table, _, method = name.partition("/")
    for row in tables(text).get(table, []):
        if row[0] == method:
            if found := [w for w in words(row[-1]) if "::" in w]:
                return found
            raise ValueError(f"the row {name} of {PAGE.relative_to(ROOT)} names no test")
    raise ValueError(f"{PAGE.relative_to(ROOT)} has no row {name}: a row is <heading of its table>/<its first cell>")
