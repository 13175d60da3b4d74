#ifndef TRAIND_LIB_PLUGIN_PLUGIN_FILES_H
#define TRAIND_LIB_PLUGIN_PLUGIN_FILES_H

// Plugin files: what the shared objects of plugin directories are, as one digest.
//
// A node reports it, because plans that were worked out with other plugins are no longer good. The
// digest is of names and bytes, so nodes of one installation report the same; where specs may name
// plugins of their own, of the paths of those directories too. A look costs a few
// calls of stat; files are only read again when one of them has another size, time or inode. A file
// that cannot be read counts by its name. Bounds: TD_PLUGIN_FILES_MAX names a
// directory, the rest counts nothing. Thread: the owner's.

#include "lib/base/digest.h"

enum { TD_PLUGIN_FILES_MAX = 256 };

struct td_plugin_files {
    uint64_t stamp;             // of sizes, times and inodes, at the last look
    char digest[TD_DIGEST_HEX]; // "": there are no plugins, or no look was taken
};

// True: the digest is another than before. Zeroes are a good beginning. `dir` is that of the
// installation; `more` are others, with ':' between them, or "".
bool td_plugin_files_look(struct td_plugin_files *f, const char *dir, const char *more);

#endif
