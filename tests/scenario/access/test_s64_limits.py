"""A daemon that may have too little to start says so and ends: it once ended without a word, or hung."""
import subprocess

import pytest

from support import BIN


@pytest.mark.parametrize("limit, words", [("-n 24", "may have 24 files open (`ulimit -n`)"),
                                          ("-v 204800", "may use 200 MiB of addresses (`ulimit -v`)")])
def test_daemon_says_which_limit_is_too_low(tmp_path, limit, words):
    ran = subprocess.run(["bash", "-c", f"ulimit {limit}; exec {BIN}/traind --state-dir {tmp_path}/s --listen 127.0.0.1:0"],
                         capture_output=True, text=True, timeout=20)
    assert ran.returncode == 1 and words in ran.stderr and "raise the limit" in ran.stderr, ran
