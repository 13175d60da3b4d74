"""The goldens of torch, Lightning and transformers are what make_golden.py writes."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tests/tools/make_golden.py"
NAMES = ("early_stopping", "loop", "losses", "parity", "plateau", "randperm", "sampler", "schedules")


def test_each_golden_has_its_maker():
    makers = re.search(r"^MAKERS = .* for f in \((.*)\)\}$", SCRIPT.read_text(), re.M)[1].split(", ")
    assert tuple(sorted(makers)) == NAMES
    assert all(list((ROOT / "tests/golden").glob(f"{name}.*")) for name in NAMES)


def test_goldens_are_what_their_makers_write(full, torch_python):
    """To the byte."""
    ran = subprocess.run([torch_python, SCRIPT, "--check", *NAMES], capture_output=True, text=True, timeout=900)
    assert ran.returncode == 0, ran.stderr


def test_golden_that_was_changed_is_named(full, torch_python, tmp_path):
    copy = tmp_path / "tests"
    for folder in ("tools", "parity", "golden"):
        (copy / folder).mkdir(parents=True)
    for path in ("tools/make_golden.py", "parity/networks.py", "parity/optimizers.py", "problems.py", "golden/plateau.json"):
        (copy / path).write_text((ROOT / "tests" / path).read_text())
    golden = copy / "golden/plateau.json"
    golden.write_text(golden.read_text().replace("0.4", "0.5", 1))
    ran = subprocess.run([torch_python, copy / "tools/make_golden.py", "--check", "plateau"], capture_output=True, text=True,
                         timeout=600)
    assert ran.returncode == 1 and "other than plateau.json" in ran.stderr, ran.stderr
