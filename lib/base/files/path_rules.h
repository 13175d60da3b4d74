#ifndef TRAIND_LIB_BASE_FILES_PATH_RULES_H
#define TRAIND_LIB_BASE_FILES_PATH_RULES_H

// Path rules: what a job may read and write by a path of its spec. They are this process's, because
// a planner, a rank and a launcher each serve one job. Without rules, as in `trainctl run`, a path
// may name all that the process's user may open.
//
//                           owner and admins        others
//   state directory         nothing                 nothing
//   checkpoints/ in it      read                    read
//   the job's own in it     read, write             read, write
//   anything else           read, write             what the roots name: --read-roots to read,
//                                                   --write-roots to write and to read; to read,
//                                                   too, without --read-roots, what everyone may
//
// The nearest of these directories above a file decides. What everyone may read is a file with o+r
// below directories with o+x. Keys, tokens and databases of traind are refused to all by device and
// inode, too: a hard link to one is one. Rules judge an open descriptor, so a link, ".." and /proc
// say nothing: where the file is counts. Commands, programs and plugins are not bound by this.

#include "lib/base/buf.h"

// TD_PATH_MAKE: to make the job's own directory there. It is of a job that is planned.
enum td_path_use { TD_PATH_READ, TD_PATH_WRITE, TD_PATH_MAKE };

struct td_path_rules {
    bool is_owner;         // the spec is of the owner or an admin
    const char *state_dir; // "": there is none
    const char *own_dir;   // below its checkpoints/, the job's own; "": the job is only planned
    const char *token_file;
    const char *read_roots; // absolute directories, ':' between them; "": not given
    const char *write_roots;
};

enum { TD_PATH_RULES_BYTES = 1 << 16 }; // of the text, at most
// As the text that td_path_rules_take reads.
TD_MUST_USE td_status td_path_rules_print(const struct td_path_rules *r, struct td_buf *out);
// Sets the rules of this process, once, before it has threads. INVALID_ARGUMENT: it is no such
// text.
TD_MUST_USE td_status td_path_rules_take(const char *text);
void td_path_rules_forget(void); // of tests

// May the job use what `fd` is open on (O_PATH is enough)? To write, that is the directory that
// will hold the file, and what has the name already, if anything. `path` is as the person wrote it,
// for the message. Errors: PERMISSION_DENIED, class bad_spec, reason PATH_NOT_ALLOWED, which names
// root and flag; UNAVAILABLE, reason PATH_MOVED, when the file is not there any more under the name
// that it was opened by.
TD_MUST_USE td_status td_path_rules_check(enum td_path_use use, const char *path, int fd);
bool td_path_rules_refused(td_status borrow_status); // PATH_NOT_ALLOWED
bool td_path_rules_moved(td_status borrow_status);   // PATH_MOVED: try again

#endif
