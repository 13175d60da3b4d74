// A timer of its own, as the node's is armed for what the core wants next.

#include "daemon/node/shell/home.h"

#include <string.h>

#include "daemon/node/shell/messages.h"
#include "daemon/node/shell/shell.h"
#include "lib/base/clip.h"
#include "lib/base/log.h"
#include "lib/loop/loop.h"

enum { td_node_home_magic = 0x484f4d45 };
static const int64_t look_ns = 500 * TD_NS_PER_MS;

struct td_node_home {
    uint32_t magic;
    struct td_node_daemon *node;
    struct td_held_path state, runtime;
    struct td_loop_timer *timer;
};

static td_status look(const struct td_node_home *h) {
    TD_TRY_CTX(td_held_path_check(&h->state), "the node's state directory");
    TD_TRY_CTX(td_held_path_check(&h->runtime), "the node's runtime directory");
    return TD_OK;
}

static void report(struct td_node_home *h, const char *trouble) {
    if (strcmp(trouble, h->node->trouble) == 0) return;
    (void)td_clip(h->node->trouble, sizeof h->node->trouble, "%s", trouble);
    if (trouble[0]) {
        td_log_error("%s; nothing starts here until then, and what runs may be lost", trouble);
    } else {
        td_log_info("the node's directories are back");
    }
    td_messages_heartbeat(h->node, td_node_core_slots_used(h->node->core));
}

td_status td_node_home_check(struct td_node_home *h) {
    char trouble[TD_NODE_TROUBLE_BYTES] = "";
    td_status gone = h ? look(h) : TD_OK;
    if (gone) (void)td_clip(trouble, sizeof trouble, "%s", td_status_message(gone));
    if (h) report(h, trouble);
    return gone;
}

static void on_timer(void *arg) {
    struct td_node_home *h = TD_CAST(td_node_home, arg);
    td_status_free(td_node_home_check(h)); // it was reported
    td_loop_timer_arm(h->timer, look_ns);
}

td_status td_node_home_create(struct td_node_daemon *n, struct td_node_home **out_home) {
    struct td_node_home *h = td_calloc(1, sizeof *h);
    if (!h) return td_fail_oom();
    h->magic = td_node_home_magic;
    h->node = n;
    td_status s = td_held_path_take(n->state_dir, &h->state);
    if (!s) s = td_held_path_take(n->runtime_dir, &h->runtime);
    if (!s) s = td_loop_timer_create(n->loop, on_timer, h, &h->timer);
    if (s) {
        td_node_home_destroy(h);
        return s;
    }
    td_loop_timer_arm(h->timer, look_ns);
    *out_home = h;
    return TD_OK;
}

void td_node_home_destroy(struct td_node_home *h) {
    if (!h) return;
    td_loop_timer_destroy(h->timer);
    h->magic = 0;
    free(h);
}
