// See the header. The list of files is copied from the catalog, so that a removal meanwhile finds
// its row gone and not ours.

#include "daemon/coordinator/shell/disk/verify.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/coordinator/core/catalog/catalog.h"
#include "daemon/coordinator/shell/shell.h"
#include "lib/base/digest.h"
#include "lib/base/files/files.h"
#include "lib/base/log.h"

struct file {
    char name[208];
    char digest[TD_DIGEST_HEX];
    uint64_t bytes;
};

struct verification {
    struct td_disk_job job;
    struct td_coordinator *c;
    char id[TD_JOB_ID_MAX];
    char path[TD_JOB_PATH_MAX];
    char dir[TD_SHELL_PATH_MAX];
    td_status found; // DATA_LOSS: a file is not what was committed
    size_t n_files;
    struct file files[];
};

// ---- the disk's part ----------------------------------------------------------------------------
static td_status check_file(const char *dir, const struct file *f) {
    char path[TD_SHELL_PATH_MAX + sizeof f->name], hex[TD_DIGEST_HEX];
    snprintf(path, sizeof path, "%s/%s", dir, f->name);
    struct stat st;
    TD_AUTO_CLOSE int fd = -1;
    TD_AUTO_STATUS td_status absent = td_fs_open_below(path, strlen(dir), &fd, &st);
    if (td_status_code(absent) == TD_NOT_FOUND) return td_fail(TD_DATA_LOSS, "%s is gone", f->name);
    if (absent) return td_steal(absent);
    if ((uint64_t)st.st_size != f->bytes) {
        return td_fail(TD_DATA_LOSS, "%s has %lld bytes, expected %" PRIu64, f->name,
                       (long long)st.st_size, f->bytes);
    }
    TD_TRY(td_digest_fd(fd, path, hex));
    if (strcmp(hex, f->digest) == 0) return TD_OK;
    return td_fail(TD_DATA_LOSS, "the digest of %s is %s, expected %s", f->name, hex, f->digest);
}

static void run(struct td_disk_job *job) {
    struct verification *v = (struct verification *)job;
    for (size_t i = 0; i < v->n_files && !v->found; i++) {
        v->found = check_file(v->dir, &v->files[i]);
    }
}

static void done(struct td_disk_job *job) {
    struct verification *v = (struct verification *)job;
    if (td_status_code(v->found) == TD_DATA_LOSS) {
        td_log_warn("checkpoint is damaged job=%s path=%s why=\"%s\", continuing", v->id, v->path,
                    td_status_message(v->found));
        td_core_checkpoint_damaged(v->c->core, td_shell_now(), v->id, v->path,
                                   td_status_message(v->found));
        td_shell_after(v->c);
        td_status_free(v->found);
    } else {
        td_status_log(TD_LOG_WARN, v->found, "checkpoint not verified, continuing");
    }
    free(v);
}

// ---- asking -------------------------------------------------------------------------------------
void td_verify_checkpoint(struct td_coordinator *c, const char *job, const char *path) {
    const struct td_job *j = NULL;
    td_status_free(td_core_find_job(c->core, job, &j));
    const struct td_checkpoint *row = j ? td_catalog_find(j, path) : NULL;
    if (!row || !row->committed) return; // removed meanwhile
    struct verification *v = td_calloc(1, sizeof *v + row->n_files * sizeof v->files[0]);
    if (!v) return;
    v->job = (struct td_disk_job){.run = run, .done = done};
    v->c = c;
    memcpy(v->id, j->id, sizeof v->id);
    memcpy(v->path, row->path, sizeof v->path);
    td_shell_checkpoint_path(c, j->id, path, NULL, v->dir);
    for (uint32_t i = 0; i < row->n_files; i++) {
        struct file *f = &v->files[v->n_files++];
        snprintf(f->name, sizeof f->name, "%s", row->files[i].name);
        snprintf(f->digest, sizeof f->digest, "%s", row->files[i].digest);
        f->bytes = row->files[i].bytes;
    }
    td_status s = td_disk_submit(c->disk, &v->job);
    if (!s) return;
    td_status_log(TD_LOG_WARN, s, "checkpoint not verified, continuing");
    free(v);
}
