"""The version that programs, `cluster info` and `node list` show (deploy/version.sh), and who does not know it."""
import re
import subprocess

from support import BIN


def test_every_program_shows_the_version_and_the_engine_has_none(daemon):
    own = subprocess.check_output([BIN / "trainctl", "version", "-o", "name"], text=True).strip()
    assert re.fullmatch(r"\d+\.\d+\.\d+\+\d+\.\S+", own), own
    for program in sorted(BIN.iterdir()):
        assert subprocess.check_output([program, "--version"], text=True) == f"{program.name} {own}\n"
    assert daemon.ctl_json("cluster", "info")["version"] == own
    assert own in daemon.ctl("node", "list", "-o", "wide").stdout
    engine = [BIN.parent / "lib/libtraind.so", *(BIN.parent / "lib/traind").glob("*.so")]
    assert not any(own.encode() in file.read_bytes() for file in engine), "each commit would be another resume key"
    known = [str(d) for d in (BIN.parent / "obj").rglob("*.d") if "built_version.h" in d.read_text()]
    assert [d.removeprefix(f"{BIN.parent}/obj/") for d in known] == ["lib/version/version.d"], "each commit would compile them"
