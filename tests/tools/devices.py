"""What keeps the engine free of any one device: names of plugins, and addresses.

Which accelerator `auto` means, and in which collective ranks meet, the caller says (td_train_config). Facts of a
plugin decide the rest, so its name is in no string of the engine. A key of JSON is none: files call the build of an
accelerator "cpu".
"""

import re

PLUGINS = ["cpu", "shm", "local"]

# Where a buffer becomes an address: in accelerators, whose memory it is, and in two files of the engine. One has state,
# the other batches as loaders give them, which are host memory.
ADDRESSES = (r"accelerators/.*|tests/.*|include/traind/(?:buffer|bucket|sum)\.h|"
             r"engine/train/rank/(?:group/replicas|data/data)\.c")
BECOMES_ADDRESS = r"\btd_buffer_host\s*\(|\*\s*\)\s*(?:\(\s*uintptr_t\s*\)\s*)?\(?[\w.>\[\]-]*(?:\.|->)handle\b"


def check(path, code, problem):
    """code: without comments."""
    for m in re.finditer(BECOMES_ADDRESS, code):
        if not re.fullmatch(ADDRESSES, path):
            problem(path, code.count("\n", 0, m.start()) + 1,
                    "a buffer is made an address: it may be a device's; the accelerator's copy reads and writes both")
    for m in re.finditer(rf"\"(?:{'|'.join(PLUGINS)})\"", code) if path.startswith("engine/") else ():
        if not re.search(r"\b(?:td_json_[gs]et|set_str)\((?:\w+, )+$", code[:m.start()]):
            problem(path, code.count("\n", 0, m.start()) + 1,
                    f"the engine names {m[0]}: its caller says which plugin (td_train_config), or a fact of the plugin")
