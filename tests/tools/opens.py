"""Who opens files. What a spec or a folder names may be a FIFO, a device, or a link to a secret, so one function opens it:
td_named_open, or td_fs_open for files of traind's own. Those that make a file and write it are in a list."""
import re

# Where that holds.
COVERED = r"(daemon|engine|workloads)/.*|lib/plugin/(registry|plugin_files)\.c"
# Who may open a file all the same, and why.
MAY_OPEN = {
    "daemon/coordinator/api/shards.c": "writes an upload below its state directory",
    "daemon/coordinator/shell/access/audit_file.c": "writes a log in its state directory",
    "daemon/coordinator/shell/disk/logs.c": "writes logs below its state directory",
    "daemon/launcher/command/command.c": "O_PATH: holds a directory, and opens nothing",
    "daemon/launcher/journal.c": "appends to a log of its attempt",
    "daemon/launcher/rank.c": "appends to outputs of its attempt",
    "daemon/launcher/reports/hf.c": "makes a file of its attempt: O_EXCL",
    "daemon/node/shell/attempts/attempt.c": "appends to a log of its attempt",
    "daemon/node/shell/shards/fetch.c": "writes a copy in a directory that it has just made",
    "daemon/node/shell/attempts/finalize_log.c": "writes a log of an attempt: O_RDWR waits for no FIFO",
    "daemon/node/shell/shards/reconcile.c": "O_DIRECTORY, below a directory that is open",
    "engine/train/checkpoint/shard.c": "makes a file in a directory that it has just made",
}
OPEN = re.compile(r"(?<![\w.])(?<!->)(?:fopen\s*\(|(?:open|openat|open64|openat2|creat)\s*\([^;]*?\bO_[A-Z])")


def check(path, code, problem):
    if path in MAY_OPEN or not re.fullmatch(COVERED, path):
        return
    for m in OPEN.finditer(code):
        problem(path, code.count("\n", 0, m.start()) + 1, "files are opened by td_named_open, or td_fs_open if they are traind's own "
                "(lib/base/files/named.h); a writer has a row in MAY_OPEN (opens.py)")
