"""Rooms of the tree, for lint.py: none too full for a stranger, none for one file alone, and each with its story.

The story of a folder is in the comments of the header that bears its name. It names each file of the folder, so that
a reader knows what to open.
"""

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Folder -> the file whose comments tell its story, and name each of its files: a name in it, or a path from the root.
# Others tell it in the header, or else the source, that bears the folder's name.
STORIES = {
    "accelerators/cpu": "cpu.c",
    "daemon": "main.c",
    "daemon/coordinator/api": "api.h",
    "daemon/node/shell": "daemon/node/node.h",
    "include/traind": "plugin.h",
    "lib/attempt": "segments.h",
    "lib/job": "limits.h",
    "lib/plugin": "registry.h",
    "workloads/datasets": "workloads/workloads.h",
    "workloads/modules": "workloads/workloads.h",
}

# Folders without a story: programs and plugins of one file each.
NO_STORY = ("examples", "tests")

# Sources of a folder, which a stranger shall survey. What more of them make is a room inside.
MAX_SOURCES = 24
# Rooms of one file, and why.
ONE_FILE = {
    "accelerators/queue": "linked into each accelerator that wants it",
    "lib/loop": "the only home of libevent",
    "lib/topology": "the only home of hwloc",
    "daemon/node": "the node's face, over its brain and its shell",
    "lib/version": "rebuilt with each commit",
    "workloads": "the table of what its rooms hold",
}


def story_of(folder, paths):
    """The file that tells a folder's story; None: there is none."""
    named = [STORIES[folder]] if folder in STORIES else [f"{Path(folder).name}{end}" for end in (".h", ".c")]
    return next((p for name in named if (p := name if "/" in name else f"{folder}/{name}") in paths), None)


def check(paths, problem):
    """No folder is too full. Each of C has several files, and a story that names them: x.h, x.c or x.def stands for all
    of that name."""
    rooms = defaultdict(list)
    for path in paths:
        rooms[str(Path(path).parent)].append(path)
    for folder, files in sorted(rooms.items()):
        n_sources = sum(path.endswith((".c", ".cc")) or Path(path).match("test_*.py") for path in files)
        if n_sources > MAX_SOURCES:
            problem(folder, 1, f"the folder has {n_sources} sources, at most {MAX_SOURCES}: give it rooms")
        files = [path for path in files if path.endswith((".c", ".cc", ".h", ".def"))]
        if folder.startswith(NO_STORY) or not files:
            continue
        stems = {Path(path).stem for path in files}
        if len(stems) == 1 and folder not in ONE_FILE:
            problem(folder, 1, "a room of one file needs a reason (ONE_FILE in rooms.py)")
        story = story_of(folder, paths)
        if not story:
            problem(folder, 1, "the folder wants a header of its name that tells its story (or a row in STORIES, rooms.py)")
            continue
        text = "\n".join(x for x in (ROOT / story).read_text().splitlines() if x.lstrip().startswith("//"))
        named = set(re.findall(r"(?<![\w*])(\w+)\.(?:h|c|def)(?!\w)", text))
        for stem in sorted(stems - {Path(story).stem}):
            if stem not in named:
                problem(story, 1, f"the story of {folder} does not name a file {stem}")
