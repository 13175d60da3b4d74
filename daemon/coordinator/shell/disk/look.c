// See the header. One disk job with all of it: names are copied, and what leaves the catalog
// meanwhile is not found any more when the answer comes.

#include "daemon/coordinator/shell/disk/look.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/coordinator/core/catalog/catalog.h"
#include "daemon/coordinator/shell/shell.h"
#include "lib/attempt/checkpoint_name.h"
#include "lib/base/log.h"

struct file {
    char name[TD_CHECKPOINT_FILE_BYTES];
    uint64_t bytes; // 0: unknown
};

struct place {
    struct place *next;
    char id[TD_JOB_ID_MAX];
    char path[TD_JOB_PATH_MAX];
    char why[256]; // "": all is there
    bool known;    // else the disk did not say
    size_t n_files;
    struct file file[];
};

struct look {
    struct td_disk_job job;
    struct td_coordinator *c;
    struct place *first;
};

// ---- the disk's part ----------------------------------------------------------------------------
static bool look_at(const char *dir, const struct file *f, struct place *p) {
    char path[TD_SHELL_PATH_MAX + sizeof f->name];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", dir, f->name);
    bool there = lstat(path, &st) == 0;
    if (!there && errno != ENOENT && errno != ENOTDIR) return false;
    if (!there || !S_ISREG(st.st_mode)) {
        snprintf(p->why, sizeof p->why, "%s is gone", f->name);
    } else if (f->bytes && (uint64_t)st.st_size != f->bytes) {
        snprintf(p->why, sizeof p->why, "%s has %jd bytes, expected %" PRIu64, f->name,
                 (intmax_t)st.st_size, f->bytes);
    }
    return true;
}

static void run(struct td_disk_job *job) {
    const struct look *l = (const struct look *)job;
    for (struct place *p = l->first; p; p = p->next) {
        char dir[TD_SHELL_PATH_MAX];
        td_shell_checkpoint_path(l->c, p->id, p->path, NULL, dir);
        p->known = true;
        for (size_t i = 0; i < p->n_files && p->known && !p->why[0]; i++) {
            p->known = look_at(dir, &p->file[i], p);
        }
    }
}

static void done(struct td_disk_job *job) {
    struct look *l = (struct look *)job;
    while (l->first) {
        struct place *p = l->first;
        l->first = p->next;
        if (p->known && !l->c->closing) {
            td_core_checkpoint_missing(l->c->core, td_shell_now(), p->id, p->path,
                                       p->why[0] ? p->why : NULL);
        }
        free(p);
    }
    if (!l->c->closing) td_shell_after(l->c);
    free(l);
}

// ---- asking -------------------------------------------------------------------------------------
static void add(struct look *l, const struct td_job *j, const struct td_checkpoint *row) {
    struct place *p = td_calloc(1, sizeof *p + row->n_files * sizeof p->file[0]);
    if (!p) return; // the next start looks
    memcpy(p->id, j->id, sizeof p->id);
    memcpy(p->path, row->path, sizeof p->path);
    for (uint32_t i = 0; i < row->n_files; i++) {
        snprintf(p->file[i].name, sizeof p->file[i].name, "%s", row->files[i].name);
        p->file[i].bytes = row->files[i].bytes;
    }
    p->n_files = row->n_files;
    p->next = l->first;
    l->first = p;
}

void td_look_all(struct td_coordinator *c) {
    struct look *l = td_calloc(1, sizeof *l);
    if (!l) return;
    l->job = (struct td_disk_job){.run = run, .done = done};
    l->c = c;
    uint64_t before = UINT64_MAX;
    const struct td_job *j;
    while ((j = td_core_job_before(c->core, before))) {
        before = j->seq;
        for (uint32_t i = 0; i < j->n_checkpoints; i++) {
            const struct td_checkpoint *row = j->checkpoints[i];
            if (row->streamed && row->committed) add(l, j, row);
        }
    }
    td_status failed = td_disk_submit(c->disk, &l->job);
    if (!failed) return;
    td_status_log(TD_LOG_WARN, failed, "checkpoints were not looked at, continuing");
    l->c = c;
    done(&l->job);
}
