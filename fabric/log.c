// Log: what a program says (values, lines, hooks), and what it is asked for. Values take the way of
// a job's metrics: into the ring, which a launcher reads. Alone the rank prints them itself, as
// JSON lines. Loggers are called right away, by the rank that logs.

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/train/loop/boundary.h"
#include "fabric/fabric.h"
#include "lib/base/files/files.h"

enum { LINE_BYTES = 64 << 10 };

static td_status log_one(struct td_fabric *f, const char *name, double value) {
    const struct td_progress at = {.step = f->loop.queued.step, .epoch = f->loop.at.epoch};
    if (!name || !td_metric_name_fits(name)) {
        return td_fabric_misuse("td_fabric_log of '%s': a name has 1 to %d bytes of UTF-8",
                                name ? name : "", TD_METRIC_NAME_BYTES - 1);
    }
    if (f->in_job || f->prints) {
        td_metrics_mean(&f->rank->metrics, name, at.step, at.epoch, value, 1);
    }
    for (size_t i = 0; i < f->o.n_loggers; i++) {
        f->o.loggers[i].log(f->o.loggers[i].arg, name, value, at.step, at.epoch);
    }
    return TD_OK;
}

td_status td_fabric_log(struct td_fabric *f, const char *name, double value) {
    TD_TRY(td_fabric_need_setup(f, "td_fabric_log"));
    return log_one(f, name, value);
}

td_status td_fabric_log_dict(struct td_fabric *f, const struct td_fabric_value_of *values,
                             size_t n) {
    TD_TRY(td_fabric_need_setup(f, "td_fabric_log_dict"));
    for (size_t i = 0; i < n; i++) {
        TD_TRY(log_one(f, values[i].name, values[i].value));
    }
    return TD_OK;
}

td_status td_fabric_log_step(struct td_fabric *f) {
    TD_TRY(td_fabric_need_setup(f, "td_fabric_log_step"));
    TD_TRY(td_fabric_failed(f, td_manual_drain(&f->manual)));
    return f->in_job || f->prints ? td_fabric_failed(f, td_boundary_log(&f->loop)) : TD_OK;
}

td_status td_fabric_print(struct td_fabric *f, const char *fmt, ...) {
    if (f->env && f->env->rank != 0) return TD_OK;
    TD_AUTO_BUF line;
    td_buf_init(&line, LINE_BYTES);
    TD_TRY(td_buf_reserve(&line, LINE_BYTES));
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line.data, LINE_BYTES - 1, fmt, ap);
    va_end(ap);
    if (n < 0 || n >= LINE_BYTES - 1) {
        return td_fabric_misuse(
            "td_fabric_print of a line that is no text, or longer than %d bytes", LINE_BYTES - 2);
    }
    line.data[n] = '\n';
    return td_fd_write_all(STDOUT_FILENO, line.data, (size_t)n + 1, "stdout");
}

td_status td_fabric_call(struct td_fabric *f, const char *hook, const void *data) {
    for (size_t i = 0; i < f->o.n_callbacks; i++) {
        const struct td_fabric_callback *c = &f->o.callbacks[i];
        if (strcmp(c->hook, hook) == 0) {
            TD_TRY_CTX(c->call(f, c->arg, data), "callback %zu at '%s'", i, hook);
        }
    }
    return TD_OK;
}

td_status td_fabric_take_wishes(struct td_fabric *f, struct td_fabric_wishes *out_wishes) {
    TD_TRY(td_fabric_need_setup(f, "td_fabric_take_wishes"));
    TD_TRY(td_fabric_failed(f, td_manual_agree(&f->manual)));
    const struct td_agreement a = td_control_take(&f->rank->control);
    const bool stop = a.stop || a.timer;
    const struct td_fabric_wishes wishes = {
        .struct_bytes = out_wishes->struct_bytes,
        .stop = stop,
        .save = a.save || (stop && !a.now),
    };
    f->stopping |= a.stop;
    memcpy(out_wishes, &wishes, TD_MIN(out_wishes->struct_bytes, sizeof wishes));
    return TD_OK;
}
