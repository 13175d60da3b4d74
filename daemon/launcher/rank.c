// See the header. The static drain buffer serves all ranks: there is one thread.

#include "daemon/launcher/rank.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "daemon/launcher/reports/lines.h"
#include "lib/attempt/devices.h"
#include "lib/attempt/outcome.h"
#include "lib/attempt/segments.h"
#include "lib/base/clip.h"
#include "lib/base/clock.h"
#include "lib/base/files/files.h"

enum {
    DRAIN_BYTES = 64 << 10,
    DRAIN_RECORDS = DRAIN_BYTES / (int)sizeof(struct td_metric_record),
    DRAIN_ROUNDS = 64, // at a rank's end: more than a pipe and a ring hold
    RING_BYTES_RESIDENT = 128 << 10,
    PIPE_BYTES = 256 << 10,
};
static _Alignas(64) char drain_buffer[DRAIN_BYTES];

// ---- memory and files ---------------------------------------------------------------------------
static td_status open_segment(const char *dir, const char *name, int *out_fd,
                              struct td_launch_file *out_file) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) return td_fs_fail("open", path);
    *out_fd = fd;
    return td_launch_file_init(out_file, dir, name);
}

td_status td_launch_rank_init(struct td_launch_rank *r, int32_t rank,
                              const struct td_launch_options *o) {
    *r = (struct td_launch_rank){.rank = rank,
                                 .events_fd = -1,
                                 .answer_fd = -1,
                                 .metrics_fd = -1,
                                 .page_fd = -1,
                                 .out = {.pipe_fd = -1, .file_fd = -1},
                                 .err = {.pipe_fd = -1, .file_fd = -1},
                                 .proc = {.pidfd = -1}};
    char name[32];
    snprintf(name, sizeof name, TD_SEGMENT_OUT, (unsigned)rank);
    TD_TRY(open_segment(o->dir, name, &r->out.file_fd, &r->out.file));
    snprintf(name, sizeof name, TD_SEGMENT_ERR, (unsigned)rank);
    TD_TRY(open_segment(o->dir, name, &r->err.file_fd, &r->err.file));
    snprintf(name, sizeof name, TD_SEGMENT_METRICS, (unsigned)rank);
    TD_TRY(open_segment(o->dir, name, &r->metrics_fd, &r->metrics_file));
    return td_rank_page_make(rank, o->world_size, &r->page_fd, &r->page, &r->ring);
}

void td_launch_rank_finish(struct td_launch_rank *r) {
    int *fds[] = {&r->out.pipe_fd, &r->out.file_fd, &r->err.pipe_fd, &r->err.file_fd, &r->events_fd,
                  &r->metrics_fd,  &r->page_fd,     &r->proc.pidfd,  &r->answer_fd};
    for (size_t i = 0; i < TD_COUNTOF(fds); i++) {
        td_auto_close(fds[i]);
        *fds[i] = -1;
    }
    td_output_finish(&r->out);
    td_output_finish(&r->err);
    if (r->page) munmap(r->page, td_rank_page_memory());
    r->page = NULL;
    td_metric_names_finish(&r->names);
    td_talk_values_finish(&r->values);
    td_metric_names_finish(&r->said_names);
}

// ---- process ------------------------------------------------------------------------------------
struct child_fds {
    int out, err, events;
};
static void child_fds_auto(struct child_fds *c) {
    td_auto_close(&c->out);
    td_auto_close(&c->err);
    td_auto_close(&c->events);
}

static td_status make_pipes(struct td_launch_rank *r, struct child_fds *c) {
    int *ours[] = {&r->out.pipe_fd, &r->err.pipe_fd}, *theirs[] = {&c->out, &c->err};
    for (int i = 0; i < 2; i++) {
        int p[2];
        if (pipe2(p, O_CLOEXEC) != 0) return td_fail_errno(TD_RESOURCE_EXHAUSTED, "make a pipe");
        *ours[i] = p[0];
        *theirs[i] = p[1];
        (void)fcntl(p[0], F_SETFL, O_NONBLOCK);      // our end only
        (void)fcntl(p[0], F_SETPIPE_SZ, PIPE_BYTES); // a wish; 64 KiB serves too
    }
    int s[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s) != 0) {
        return td_fail_errno(TD_RESOURCE_EXHAUSTED, "make a socket for events");
    }
    r->events_fd = s[0];
    c->events = s[1];
    (void)fcntl(s[0], F_SETFL, O_NONBLOCK);
    return TD_OK;
}

// The list of rank idx alone, as text.
static void cores_of(const char *lists, int32_t idx, char *out, size_t out_bytes) {
    const char *p = lists;
    for (int32_t i = 0; i < idx; i++) {
        p += strcspn(p, ":");
        if (*p == ':') p++;
    }
    snprintf(out, out_bytes, "%.*s", (int)strcspn(p, ":"), p);
}

void td_launch_rank_limits(const struct td_launch_options *o, int32_t idx,
                           char out_memory[TD_LAUNCH_NUMBER], char out_cores[TD_LAUNCH_CORES]) {
    uint64_t own = o->memory_limit_bytes > o->shared_bytes
                       ? (o->memory_limit_bytes - o->shared_bytes) / (uint64_t)o->n_ranks
                       : 0;
    snprintf(out_memory, TD_LAUNCH_NUMBER, "%llu", (unsigned long long)own);
    cores_of(o->cores, idx, out_cores, TD_LAUNCH_CORES);
}

td_status td_launch_rank_spawn(struct td_launch_rank *r, const struct td_launch_spawn *s) {
    __attribute__((cleanup(child_fds_auto))) struct child_fds theirs = {-1, -1, -1};
    TD_TRY(make_pipes(r, &theirs));
    struct td_proc_fd fds[3 + TD_COUNTOF(s->more)] = {
        {theirs.out, 1}, {theirs.err, 2}, {theirs.events, s->events_at}};
    memcpy(fds + 3, s->more, s->n_more * sizeof *fds);
    struct td_proc_options p = {.path = s->argv[0],
                                .argv = s->argv,
                                .env = s->env,
                                .fds = fds,
                                .n_fds = 3 + s->n_more,
                                .new_session = true,
                                .holds_stops = s->holds_stops,
                                .cwd = s->cwd};
    return td_proc_spawn(&p, &r->proc);
}

td_status td_launch_rank_start(struct td_launch_rank *r, int32_t idx,
                               const struct td_launch_options *o, const char *self,
                               const char *const *env, const struct td_launch_shared *shared) {
    char parent[16], rank[16], world[16], memory[TD_LAUNCH_NUMBER], cores[TD_LAUNCH_CORES];
    char device[TD_DEVICE_UUID];
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    snprintf(rank, sizeof rank, "%d", r->rank);
    snprintf(world, sizeof world, "%d", o->world_size);
    td_launch_rank_limits(o, idx, memory, cores);
    const char *argv[32] = {
        self,           "exec-rank", parent,      cores,   memory,        "0", // any processor time
        o->worker,      "run",       "--plan",    o->plan, "--rank",      rank,
        "--world-size", world,       "--page-fd", "3",     "--events-fd", "4"};
    size_t n = 18;
    if (o->cpu_level[0]) {
        argv[n++] = "--cpu-level";
        argv[n++] = o->cpu_level;
    }
    if (td_device_list_at(o->devices, (uint32_t)idx, device)) {
        argv[n++] = "--device";
        argv[n++] = device;
    }
    if (o->plugin_dirs[0]) {
        argv[n++] = "--plugin-dirs";
        argv[n++] = o->plugin_dirs;
    }
    if (o->path_rules[0]) {
        argv[n++] = "--path-rules";
        argv[n++] = o->path_rules;
    }
    struct td_launch_spawn s = {.argv = argv,
                                .env = env,
                                .cwd = o->dir,
                                .holds_stops = true,
                                .events_at = 4,
                                .more = {{r->page_fd, 3}},
                                .n_more = 1};
    if (shared->group_fd >= 0) {
        argv[n++] = "--group-fd";
        argv[n++] = "5";
        s.more[s.n_more++] = (struct td_proc_fd){shared->group_fd, 5};
    }
    if (shared->store_fd >= 0) {
        argv[n++] = "--store-fd";
        argv[n++] = "6";
        s.more[s.n_more++] = (struct td_proc_fd){shared->store_fd, 6};
    }
    return td_launch_rank_spawn(r, &s);
}

void td_launch_rank_kill(struct td_launch_rank *r) {
    if (!td_launch_rank_runs(r)) return;
    r->kill_sent = true;
    if (r->proc.pidfd >= 0) (void)pidfd_send_signal(r->proc.pidfd, SIGKILL, NULL, 0);
    (void)kill(-r->proc.pid, SIGKILL); // a session leader's group; not reaped yet, so still its own
}

// ---- draining -----------------------------------------------------------------------------------
// True while more may be there.
static bool drain_once(struct td_launch_stream *s, const struct td_launch_stream *other) {
    if (s->pipe_fd < 0) return false;
    ssize_t n = read(s->pipe_fd, drain_buffer, sizeof drain_buffer);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n <= 0) {
        close(s->pipe_fd); // epoll forgets it with the last descriptor
        s->pipe_fd = -1;
        return false;
    }
    td_output_take(s, other, drain_buffer, (size_t)n);
    if (s->lines) td_launch_lines_take(s->lines, drain_buffer, (size_t)n);
    return true;
}

void td_launch_rank_drain_out(struct td_launch_rank *r) {
    (void)drain_once(&r->out, &r->err);
}

void td_launch_rank_drain_err(struct td_launch_rank *r) {
    (void)drain_once(&r->err, &r->out);
}

// The next records for the file: names that are not in it yet, then what the ring has. It takes a
// bounded number out of the ring: a rank may go on to define names past their bound.
static size_t take_records(struct td_launch_rank *r, struct td_metric_record *out,
                           uint32_t *out_names, size_t *out_points) {
    struct td_metric_point ignored;
    size_t n = 0;
    uint32_t names = r->names_written;
    *out_points = 0;
    for (; n < DRAIN_RECORDS && names < r->names.n; names++) {
        td_metric_names_define(r->names.text[names], &out[n++]);
    }
    for (int i = 0; i < DRAIN_RECORDS && n < DRAIN_RECORDS && td_ring_pop(&r->ring, &out[n]); i++) {
        if (!td_metric_is_name(&out[n])) {
            ++*out_points;
            n++;
            continue;
        }
        (void)td_metric_names_take(&r->names, &out[n], &ignored);
        if (names == r->names.n) continue; // past the bound of names
        names++;
        n++;
    }
    *out_names = names;
    return n;
}

void td_launch_rank_drain_metrics(struct td_launch_rank *r) {
    struct td_metric_record *records = (struct td_metric_record *)(void *)drain_buffer;
    for (int round = 0; round < TD_METRIC_RING_RECORDS / DRAIN_RECORDS + 1; round++) {
        uint32_t names;
        size_t points, n = take_records(r, records, &names, &points);
        if (n == 0) break;
        size_t bytes = n * sizeof *records;
        if (td_launch_file_append(r->metrics_fd, &r->metrics_bytes, records, bytes)) {
            r->names_written = names;
        } else {
            r->lost_points += points;
        }
        r->undropped += (uint32_t)bytes;
    }
    if (r->undropped < RING_BYTES_RESIDENT) return;
    // The memory stays; only our mapping of it is given back, which keeps this process small.
    (void)madvise(r->page, td_rank_page_memory(), MADV_DONTNEED);
    r->undropped = 0;
}

void td_launch_rank_add_points(struct td_launch_rank *r, const struct td_metric_record *records,
                               size_t n) {
    if (!n) return;
    if (!td_launch_file_append(r->metrics_fd, &r->metrics_bytes, records, n * sizeof *records)) {
        r->lost_points += n;
    }
}

static void note_end(struct td_launch_rank *r, const struct td_event *event) {
    if (event->kind != TD_EVENT_END) return;
    const struct td_event_end *e = &event->end;
    r->said_end = true;
    r->said_failed = td_outcome_parse(e->outcome) == TD_OUTCOME_FAILED;
    snprintf(r->end_class, sizeof r->end_class, "%s", e->class);
    snprintf(r->end_code, sizeof r->end_code, "%s", e->code);
    (void)td_clip(r->end_message, sizeof r->end_message, "%s", e->message);
}

void td_launch_rank_drain_events(struct td_launch_rank *r, struct td_journal *j) {
    for (int i = 0; i < DRAIN_ROUNDS && r->events_fd >= 0; i++) {
        ssize_t n = recv(r->events_fd, drain_buffer, TD_EVENT_MAX + 1, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (n == 0 && !td_fd_has_ended(r->events_fd)) continue;
        if (n <= 0) {
            close(r->events_fd);
            r->events_fd = -1;
            return;
        }
        struct td_event event;
        td_status s =
            n <= TD_EVENT_MAX
                ? td_journal_forward(j, (uint32_t)r->rank, drain_buffer, (size_t)n, &event)
                : td_fail(TD_INVALID_ARGUMENT, "an event over %d bytes", TD_EVENT_MAX);
        if (!s) {
            r->speaks = true;
            note_end(r, &event);
            continue;
        }
        struct td_event_writer note;
        char text[512];
        (void)td_clip(text, sizeof text, "rank %d sent an event that cannot be read: %s", r->rank,
                      td_status_message(s));
        td_journal_begin(j, TD_EVENT_NOTE, &note);
        td_event_rank(&note, r->rank);
        td_event_note_text(&note, text);
        td_journal_append(j, &note);
        td_status_free(s);
    }
}

void td_launch_rank_ended(struct td_launch_rank *r, struct td_journal *j, int wait_code,
                          int wait_status) {
    for (int i = 0; i < DRAIN_ROUNDS && drain_once(&r->out, &r->err); i++) {}
    for (int i = 0; i < DRAIN_ROUNDS && drain_once(&r->err, &r->out); i++) {}
    if (r->out.lines) td_launch_lines_end(r->out.lines);
    td_output_end(&r->out, &r->err);
    td_output_end(&r->err, &r->out);
    if (j) td_launch_rank_drain_events(r, j);
    td_launch_rank_drain_metrics(r);
    int *fds[] = {&r->out.pipe_fd, &r->err.pipe_fd, &r->events_fd, &r->proc.pidfd};
    for (size_t i = 0; i < TD_COUNTOF(fds); i++) {
        td_auto_close(fds[i]);
        *fds[i] = -1;
    }
    r->exited = true;
    r->exit_code = wait_code == CLD_EXITED ? wait_status : -1;
    r->signal = wait_code == CLD_EXITED ? 0 : wait_status;
}

void td_launch_rank_look(struct td_launch_rank *r, struct td_mono now) {
    td_output_look(&r->out, &r->err, now);
    td_output_look(&r->err, &r->out, now);
    int64_t samples = td_rank_page_progress(r->page).samples, age_ns = now.ns - r->window_start.ns;
    if (r->exited) r->samples_per_s = 0;
    // The first figure comes soon, later ones are averages of a second.
    int64_t window_ns = r->samples_per_s > 0 ? TD_NS_PER_S : TD_NS_PER_S / 5;
    if (r->exited || age_ns < window_ns) return;
    int64_t done = samples - r->window_samples;
    if (r->window_start.ns > 0 && done >= 0) {
        r->samples_per_s = (double)done * 1e9 / (double)age_ns;
    }
    r->window_start = now;
    r->window_samples = samples;
}

uint64_t td_launch_rank_dropped_points(const struct td_launch_rank *r) {
    return td_ring_drops(&r->ring) + r->lost_points + r->values.dropped;
}
