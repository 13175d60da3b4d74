// A list of closures with tickets, and one task on the loop. See gate.h for the rule.

#include "daemon/coordinator/gate.h"

#include "lib/rpc/loop.h"

struct item {
    struct item *next;
    uint64_t ticket;
    void (*fn)(void *take_arg, bool pass);
    void *arg;
};

struct mail { // frees itself when its gate is gone before it ran
    struct td_loop_task task;
    bool posted;
    struct td_gate *gate;
};

struct td_gate {
    struct td_loop *loop;
    struct item *head, **tail;
    uint64_t issued, committed;
    struct mail *mail;
};

static void open_gate(void *arg) {
    struct mail *mail = arg;
    mail->posted = false;
    struct td_gate *g = mail->gate;
    if (!g) {
        free(mail);
        return;
    }
    while (g->head && g->head->ticket <= g->committed) {
        struct item *i = g->head;
        g->head = i->next;
        if (!g->head) g->tail = &g->head;
        i->fn(i->arg, true);
        free(i);
    }
}

static void wake(struct td_gate *g) {
    if (g->mail->posted || !g->head || g->head->ticket > g->committed) return;
    g->mail->posted = true;
    td_loop_post_task(g->loop, &g->mail->task);
}

td_status td_gate_create(struct td_loop *loop, struct td_gate **out_gate) {
    TD_AUTO(td_gate) *g = td_calloc(1, sizeof *g);
    if (!g) return td_fail_oom();
    g->loop = loop;
    g->tail = &g->head;
    g->mail = td_calloc(1, sizeof *g->mail);
    if (!g->mail) return td_fail_oom();
    g->mail->task = (struct td_loop_task){.run = open_gate, .arg = g->mail};
    g->mail->gate = g;
    *out_gate = td_steal(g);
    return TD_OK;
}

void td_gate_destroy(struct td_gate *g) {
    if (!g) return;
    while (g->head) {
        struct item *i = g->head;
        g->head = i->next;
        i->fn(i->arg, false);
        free(i);
    }
    if (g->mail) {
        g->mail->gate = NULL;
        if (!g->mail->posted) free(g->mail);
    }
    free(g);
}

void td_gate_issued(struct td_gate *g, uint64_t ticket) {
    TD_CHECK(ticket > g->issued);
    g->issued = ticket;
}

void td_gate_committed(struct td_gate *g, uint64_t ticket) {
    if (ticket > g->committed) g->committed = ticket;
    wake(g);
}

void td_gate_put(struct td_gate *g, void (*fn)(void *take_arg, bool pass), void *take_arg) {
    struct item *i = td_calloc(1, sizeof *i);
    TD_CHECK(i && "out of memory: start again from the disk");
    i->ticket = g->issued;
    i->fn = fn;
    i->arg = take_arg;
    *g->tail = i;
    g->tail = &i->next;
    wake(g);
}
