// See the header.

#include "daemon/launcher/record.h"

#include <limits.h>
#include <stdio.h>

#include "daemon/launcher/state.h"
#include "lib/attempt/segments.h"
#include "lib/base/files/files.h"
#include "lib/version/version.h"

td_status td_launcher_write_record(struct td_launcher *l) {
    struct td_arena *a = l->arena;
    td_arena_reset(a);
    struct td_json *v = td_json_new(a, TD_JSON_OBJECT);
    const struct td_launch_options *o = &l->o;
    bool ok = td_json_set(a, v, "format", td_json_new_int(a, TD_RECORD_FORMAT)) &&
              td_json_set(a, v, "major", td_json_new_int(a, TD_LAUNCHER_MAJOR)) &&
              td_json_set(a, v, "minor", td_json_new_int(a, TD_LAUNCHER_MINOR)) &&
              td_json_set(a, v, "build", td_json_new_string(a, td_version)) &&
              td_json_set(a, v, "pid", td_json_new_int(a, getpid())) &&
              td_json_set(a, v, "start_ticks", td_json_new_int(a, (int64_t)l->start_ticks)) &&
              td_json_set(a, v, "boot_id", td_json_new_string(a, l->boot_id)) &&
              td_json_set(a, v, "socket", td_json_new_string(a, l->link.path)) &&
              td_json_set(a, v, "job", td_json_new_string(a, o->job)) &&
              td_json_set(a, v, "attempt", td_json_new_int(a, o->attempt)) &&
              td_json_set(a, v, "epoch", td_json_new_int(a, (int64_t)o->epoch)) &&
              td_json_set(a, v, "world_size", td_json_new_int(a, o->world_size)) &&
              td_json_set(a, v, "first_rank", td_json_new_int(a, o->first_rank)) &&
              td_json_set(a, v, "n_ranks", td_json_new_int(a, o->n_ranks)) &&
              td_json_set(a, v, "cores", td_json_new_string(a, o->cores)) &&
              td_json_set(a, v, "threads", td_json_new_int(a, o->threads));
    if (!ok) return td_fail_oom();
    TD_AUTO_BUF text;
    td_buf_init(&text, TD_RECORD_MAX);
    TD_TRY(td_json_print(v, true, &text));
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", o->dir, TD_SEGMENT_RECORD);
    // Not synced: no launcher outlives a power failure, and a torn record fences the attempt.
    return td_fs_write(path, text.data, text.len, 0600, 0);
}

void td_launcher_note_launched(struct td_launcher *l) {
    struct td_event_writer line;
    td_journal_begin(&l->journal, TD_EVENT_LAUNCHED, &line);
    td_event_launched_pid(&line, getpid());
    td_event_launched_start_ticks(&line, (int64_t)l->start_ticks);
    td_event_launched_boot_id(&line, l->boot_id);
    td_event_launched_build(&line, td_version);
    td_event_launched_epoch(&line, (int64_t)l->o.epoch);
    td_event_launched_first_rank(&line, l->o.first_rank);
    td_event_launched_n_ranks(&line, l->o.n_ranks);
    td_event_launched_boundaries(&line, td_launcher_counts_boundaries(l));
    td_journal_append(&l->journal, &line);
}
