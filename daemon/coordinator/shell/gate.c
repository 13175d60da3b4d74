// A list of closures with tickets. See gate.h for the rule.

#include "daemon/coordinator/shell/gate.h"

struct item {
    struct item *next;
    uint64_t ticket;
    bool impatient;
    td_gate_fn *fn;
    void *arg;
};

struct td_gate {
    struct item *head, **tail;
    uint64_t issued, committed;
    uint64_t wanted; // the ticket of what was put last and is not patient
    bool stuck;
};

void td_gate_open(struct td_gate *g) {
    while (g->head && g->head->ticket <= g->committed) {
        struct item *i = g->head;
        g->head = i->next;
        if (!g->head) g->tail = &g->head;
        i->fn(i->arg, TD_GATE_OPEN);
        free(i);
    }
    struct item **at = &g->head;
    while (g->stuck && *at) {
        struct item *i = *at;
        if (!i->impatient) {
            at = &i->next;
            continue;
        }
        *at = i->next;
        if (!*at) g->tail = at;
        i->fn(i->arg, TD_GATE_STUCK);
        free(i);
    }
}

td_status td_gate_create(struct td_gate **out_gate) {
    struct td_gate *g = td_calloc(1, sizeof *g);
    if (!g) return td_fail_oom();
    g->tail = &g->head;
    *out_gate = g;
    return TD_OK;
}

void td_gate_destroy(struct td_gate *g) {
    if (!g) return;
    while (g->head) {
        struct item *i = g->head;
        g->head = i->next;
        i->fn(i->arg, TD_GATE_DROPPED);
        free(i);
    }
    free(g);
}

void td_gate_issued(struct td_gate *g, uint64_t ticket) {
    TD_CHECK(ticket > g->issued);
    g->issued = ticket;
}

void td_gate_committed(struct td_gate *g, uint64_t ticket) {
    if (ticket > g->committed) g->committed = ticket;
}

bool td_gate_wants(const struct td_gate *g, uint64_t ticket) {
    return g->wanted >= ticket;
}

void td_gate_set_stuck(struct td_gate *g, bool stuck) {
    g->stuck = stuck;
}

enum haste { PATIENT, USUAL, IMPATIENT };

static void put(struct td_gate *g, td_gate_fn *fn, void *take_arg, enum haste haste) {
    struct item *i = td_calloc(1, sizeof *i);
    TD_CHECK(i && "out of memory: start again from the disk");
    i->ticket = g->issued;
    i->fn = fn;
    i->arg = take_arg;
    i->impatient = haste == IMPATIENT;
    if (haste != PATIENT) g->wanted = g->issued;
    *g->tail = i;
    g->tail = &i->next;
}

void td_gate_put(struct td_gate *g, td_gate_fn *fn, void *take_arg) {
    put(g, fn, take_arg, USUAL);
}

void td_gate_put_impatient(struct td_gate *g, td_gate_fn *fn, void *take_arg) {
    put(g, fn, take_arg, IMPATIENT);
}

void td_gate_put_patient(struct td_gate *g, td_gate_fn *fn, void *take_arg) {
    put(g, fn, take_arg, PATIENT);
}
