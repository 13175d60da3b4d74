// See the header.

#include "daemon/node/shell/gpus/gpu_errors.h"

#include <stdio.h>
#include <string.h>

#include "lib/attempt/xids.h"

// The place of the error that the next one replaces; n: it replaces none.
static size_t find_place(const struct td_gpu_errors *e, const char *uuid, uint32_t xid) {
    for (size_t i = 0; i < e->n; i++) {
        if (e->error[i].xid == xid && strcmp(e->error[i].uuid, uuid) == 0) return i;
    }
    if (e->n < TD_GPU_ERRORS) return e->n;
    for (size_t i = 0; i < e->n; i++) {
        if (td_xid_get(e->error[i].xid).effect != TD_XID_EXCLUDES) return i;
    }
    return 0;
}

void td_gpu_errors_add(struct td_gpu_errors *e, const char *uuid, uint32_t xid,
                       struct td_real now) {
    const size_t place = find_place(e, uuid, xid);
    if (place < e->n) {
        memmove(&e->error[place], &e->error[place + 1],
                (--e->n - place) * sizeof e->error[0]); // the newest is the last
    }
    struct td_gpu_error *to = &e->error[e->n++];
    *to = (struct td_gpu_error){.number = ++e->n_ever, .xid = xid};
    snprintf(to->uuid, sizeof to->uuid, "%s", uuid);
    td_real_format(now, to->time, sizeof to->time);
}

void td_gpu_errors_put(struct td_gpu_errors *e, Traind__V1__GpuList *io_list) {
    for (size_t i = 0; i < e->n; i++) {
        Traind__V1__GpuError *m = e->at[i] = &e->message[i];
        traind__v1__gpu_error__init(m);
        m->number = e->error[i].number;
        m->uuid = e->error[i].uuid;
        m->xid = e->error[i].xid;
        m->time = e->error[i].time;
    }
    io_list->errors = e->at;
    io_list->n_errors = e->n;
}
