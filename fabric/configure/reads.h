#ifndef TRAIND_FABRIC_CONFIGURE_READS_H
#define TRAIND_FABRIC_CONFIGURE_READS_H

// Reads: the files that a plan was made from, and whether they are still the same.
//
// A plan is kept for a spec (the coordinator's plans_cache.h), and the files that the spec names
// may change: data that grows, weights that are replaced. So a plan carries what it read, and a
// node compares that before the plan is used again. One entry is one value of the spec: a path, a
// list of paths, or a folder with all in it, to a depth of 8.
//
//   of             the key: "data.train", "init_from"
//   path           the first of them
//   files, bytes   how many there are, and their size together
//   stat           a digest of paths, sizes, both times and numbers; "" where a change could leave
//                  it as it is: a file changed just now, or there are more than TD_READS_FILES
//   digest         of content: paths, sizes, and of each file its head, tail and 64 pieces between
//                  them; all of a JSON file, and of a .safetensors file's header. Of more than 256
//                  files the time of change stands for the content. "" of more than TD_READS_FILES,
//                  which are never the same
//
// Compared is first stat, then, where that is another (another machine, a copy), the digest. A
// change of a large file that touches none of its pieces is not seen: sizes do not follow from it.
// What a plugin reads without a path in its knobs is not known. A relative text there counts as one
// while a file is there (lib/spec/place.h). Names of jobs ("JOB/last") are no
// paths. Any thread.

#include "lib/base/buf.h"
#include "lib/base/json.h"

enum { TD_READS_FILES = 1 << 16 };

// plan: a plan or canonical spec. Appends a list of entries.
TD_MUST_USE td_status td_reads_print(const struct td_json *plan, struct td_buf *out);
// kept: such a list. Appends what has changed since, a sentence; nothing: all is the same.
TD_MUST_USE td_status td_reads_compare(const struct td_json *plan, const struct td_json *kept,
                                       struct td_buf *out_change);

#endif
