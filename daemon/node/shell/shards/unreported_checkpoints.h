#ifndef TRAIND_DAEMON_NODE_SHELL_SHARDS_UNREPORTED_CHECKPOINTS_H
#define TRAIND_DAEMON_NODE_SHELL_SHARDS_UNREPORTED_CHECKPOINTS_H

// Unreported checkpoints: those that a rank had finished when it was killed, but that its launcher
// had not written down. Either both died between the rank's rename and the launcher's write, or the
// machine did before the log was on disk. The rank may have removed the one before by then, so what
// nobody reported of may be all that is left.
//
// A whole directory (it has its manifest, which comes last) of a later step than the log's last
// checkpoint line is one. The rank's line about it is written in its place, from the manifest. That
// is the only place where a directory is scanned: an attempt that is over, by the log's single
// writer. Whether the files match is for their readers to see. Loop thread.

#include "lib/base/buf.h"

// Appends the lines that are missing in the log `log_fd` to out. checkpoint_dir is ".../a<N>"; it
// may be absent. A directory whose manifest cannot be read is passed over, with a warning.
TD_MUST_USE td_status td_unreported_lines(int log_fd, const char *checkpoint_dir,
                                          struct td_buf *out);

#endif
