"""What keeps the engine free of any one device: names of plugins, and addresses.

Which accelerator `auto` means, and in which collective ranks meet, the caller says (td_train_config). Facts of a
plugin decide the rest, so its name is in no string of the engine. A key of JSON is none: files call the build of an
accelerator "cpu".
"""

import re

PLUGINS = ["cpu", "shm", "local"]


def check(path, code, problem):
    """code: without comments."""
    for m in re.finditer(rf"\"(?:{'|'.join(PLUGINS)})\"", code) if path.startswith("engine/") else ():
        if not re.search(r"\b(?:td_json_[gs]et|set_str)\((?:\w+, )+$", code[:m.start()]):
            problem(path, code.count("\n", 0, m.start()) + 1,
                    f"the engine names {m[0]}: its caller says which plugin (td_train_config), or a fact of the plugin")
