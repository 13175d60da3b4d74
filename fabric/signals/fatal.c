// The handler uses nothing but write(2), atomics, symbol.h, mapping.h and its own formatting.
// backtrace() is not on the list of async-signal-safe functions because its first call loads
// libgcc; install calls it once, so that in the handler it only walks the stack.

#include "fabric/signals/fatal.h"

#include <errno.h>
#include <execinfo.h>
#include <signal.h>
#include <string.h>

#include "fabric/signals/mapping.h"
#include "fabric/signals/symbol.h"
#include "lib/attempt/exit_codes.h"

enum { STACK_BYTES = 64 << 10, FRAMES = 32, HANDLER_FRAMES = 2 }; // itself and the kernel's
enum { NAME_BYTES = 48 }; // of each function: long ones leave room for those that called them

_Static_assert(sizeof((struct td_rank_page *)0)->lost_data == TD_MAPPING_PATH, "it holds a path");
static struct td_rank_page *fatal_page;
static char fatal_stack[STACK_BYTES];
static struct plugin {
    char *path, *what;
} plugins[TD_FATAL_PLUGINS]; // the process's own, never freed
static size_t n_plugins;
static bool exits_for_plugins;

struct text {
    char data[sizeof((struct td_rank_page *)0)->last_words];
    size_t len;
};

// The last byte is kept free for the end of the line.
static void add_at_most(struct text *t, const char *s, size_t n) {
    for (; n && *s && t->len + 1 < sizeof t->data; n--) {
        t->data[t->len++] = *s++;
    }
}

static void add(struct text *t, const char *s) {
    add_at_most(t, s, SIZE_MAX);
}

static void add_number(struct text *t, uint64_t v, unsigned base) {
    char digits[24];
    size_t n = 0;
    do {
        digits[n++] = "0123456789abcdef"[v % base];
        v /= base;
    } while (v);
    if (base == 16) add(t, "0x");
    while (n && t->len + 1 < sizeof t->data) {
        t->data[t->len++] = digits[--n];
    }
}

// A return address is the first byte after the call, so the call is looked up. What faulted is
// looked up as it is: it may be a function's first byte.
static void add_place(struct text *t, uintptr_t address, bool returned_to) {
    struct td_symbol p;
    if (td_symbol_of(address - returned_to, &p)) {
        add_at_most(t, p.name, NAME_BYTES);
        add(t, "+");
        address = p.offset + returned_to;
    }
    add_number(t, address, 16);
}

static const char *signal_name(int sig) {
    switch (sig) {
    case SIGSEGV:
        return "SIGSEGV";
    case SIGBUS:
        return "SIGBUS";
    case SIGFPE:
        return "SIGFPE";
    case SIGILL:
        return "SIGILL";
    default:
        return "SIGABRT";
    }
}

static const struct plugin *plugin_of(uintptr_t address) {
    struct td_symbol p;
    if (!td_symbol_of(address, &p)) return NULL;
    for (size_t i = 0; i < n_plugins; i++) {
        if (strcmp(plugins[i].path, p.file) == 0) return &plugins[i];
    }
    return NULL;
}

// Whose code is on the stack; the innermost. NULL: none of a plugin's.
static const struct plugin *find_plugin(void *const *frames, int n) {
    const struct plugin *found = NULL;
    for (int i = HANDLER_FRAMES; i < n && !found; i++) {
        found = plugin_of((uintptr_t)frames[i] - (i > HANDLER_FRAMES));
    }
    return found;
}

// Where the rank is, and how it came there.
static void add_stack(struct text *t, const struct td_rank_page *p, void *const *frames, int n) {
    add(t, ", phase ");
    add_number(t, (uint64_t)atomic_load_explicit(&p->phase, memory_order_relaxed), 10);
    add(t, ", step ");
    add_number(t, (uint64_t)atomic_load_explicit(&p->step, memory_order_relaxed), 10);
    add(t, ", backtrace");
    for (int i = HANDLER_FRAMES; i < n; i++) {
        add(t, " ");
        add_place(t, (uintptr_t)frames[i], i > HANDLER_FRAMES);
    }
}

// The launcher asks before it ends a rank that is silent: the answer goes into the rank's log.
static void on_ask(int sig, siginfo_t *info, void *context) {
    (void)sig;
    (void)info;
    (void)context;
    int kept = errno;
    struct text t = {.len = 0};
    void *frames[FRAMES];
    const int n = backtrace(frames, FRAMES);
    add(&t, "stack");
    add_stack(&t, fatal_page, frames, n);
    t.data[t.len++] = '\n';
    ssize_t ignored = write(STDERR_FILENO, t.data, t.len);
    (void)ignored;
    errno = kept;
}

// A file was cut short while it was mapped, or its disk fails.
static void add_file(struct text *t, uintptr_t address, struct td_rank_page *p) {
    static struct td_mapping m;
    if (!td_mapping_of(address, &m)) return;
    add(t, " in '");
    add(t, m.path);
    add(t, "' offset ");
    add_number(t, m.offset, 10);
    if (!m.is_data) return;
    memcpy(p->lost_data, m.path, sizeof p->lost_data);
    p->lost_offset = (int64_t)m.offset;
}

// By kill(1), say: where the rank is then says nothing of why it ends.
static bool sent_by_another(const siginfo_t *info) {
    return info->si_code <= 0 && info->si_pid != getpid();
}

static void add_cause(struct text *t, int sig, const siginfo_t *info) {
    if (sent_by_another(info)) {
        add(t, " sent by process ");
        add_number(t, (uint64_t)info->si_pid, 10);
    } else if (info->si_code > 0) {
        add(t, " at ");
        add_number(t, (uint64_t)(uintptr_t)info->si_addr, 16);
    }
    if (sig == SIGBUS && info->si_code == BUS_ADRERR) {
        add_file(t, (uintptr_t)info->si_addr, fatal_page);
    }
}

static void on_fatal(int sig, siginfo_t *info, void *context) {
    (void)context;
    static struct text t; // not on the small stack; one crash at a time, the second only dies
    static _Atomic int entered;
    if (atomic_exchange(&entered, 1)) _exit(TD_EXIT_BUG);
    struct td_rank_page *p = fatal_page;
    void *frames[FRAMES];
    const int n = backtrace(frames, FRAMES);
    const struct plugin *plugin = sent_by_another(info) ? NULL : find_plugin(frames, n);
    add(&t, signal_name(sig));
    if (plugin) {
        add(&t, " in ");
        add(&t, plugin->what);
        memcpy(p->plugin, plugin->what, strnlen(plugin->what, sizeof p->plugin - 1));
    }
    add_cause(&t, sig, info);
    add_stack(&t, p, frames, n);
    memcpy(p->last_words, t.data, t.len);
    p->last_words[t.len] = '\0';
    atomic_store(&p->fatal_signal, sig);
    t.data[t.len++] = '\n';
    ssize_t ignored = write(STDERR_FILENO, t.data, t.len);
    (void)ignored;
    if (plugin && exits_for_plugins) _exit(TD_EXIT_USER_CODE);
    // SA_RESETHAND restored the default action: returning runs into the fault again, and dies.
    raise(sig);
}

td_status td_fatal_install(struct td_rank_page *page) {
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    void *warm[2];
    (void)backtrace(warm, 2);
    fatal_page = page;
    stack_t stack = {.ss_sp = fatal_stack, .ss_size = sizeof fatal_stack};
    if (sigaltstack(&stack, NULL) != 0) {
        return td_fail_errno(TD_INTERNAL, "set the stack of the fatal handler");
    }
    struct sigaction sa = {.sa_flags = SA_SIGINFO | SA_ONSTACK | (int)SA_RESETHAND};
    sa.sa_sigaction = on_fatal;
    sigemptyset(&sa.sa_mask);
    for (size_t i = 0; i < TD_COUNTOF(fatal); i++) {
        if (sigaction(fatal[i], &sa, NULL) != 0) {
            return td_fail_errno(TD_INTERNAL, "install the fatal handler");
        }
    }
    return TD_OK;
}

td_status td_fatal_install_ask(void) {
    struct sigaction sa = {.sa_flags = SA_SIGINFO | SA_ONSTACK | (int)SA_RESTART};
    sa.sa_sigaction = on_ask;
    sigemptyset(&sa.sa_mask);
    if (sigaction(SIGQUIT, &sa, NULL) == 0) return TD_OK;
    return td_fail_errno(TD_INTERNAL, "install the handler that writes the stack");
}

void td_fatal_exit_for_plugins(void) {
    exits_for_plugins = true;
}

void td_fatal_note_plugin(const char *path, const char *what) {
    if (n_plugins == TD_FATAL_PLUGINS) return;
    struct plugin *p = &plugins[n_plugins];
    *p = (struct plugin){td_strdup(path), td_strdup(what)};
    if (p->path && p->what) n_plugins++; // without memory it is not named
}

void td_fatal_last_words(struct td_rank_page *page, const char *text) {
    size_t len = strnlen(text, sizeof page->last_words - 1);
    memcpy(page->last_words, text, len);
    page->last_words[len] = '\0';
}
