// Signals and keys are events of the loop, which also runs while a call to the coordinator is
// waited for. ISIG stays on, so that Ctrl-C and Ctrl-Z are signals as everywhere. A frame is one
// write: it begins at the top and clears what is left of each line, so that nothing flickers.

#include "client/screen/live.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "client/screen/screen.h"
#include "lib/base/files/files.h"

#define ENTER "\033[?1049h\033[?25l"
#define LEAVE "\033[?25h\033[?1049l"

enum { SIGNALS = 5, FRAME_MAX = 4 << 20 };

struct td_live {
    struct td_loop *loop;
    struct td_loop_signal *signal[SIGNALS];
    struct td_loop_fd *keys;
    struct termios before;
    bool has_keys, shown;
    bool over, wakes;
    int ended_by;
};

static td_status put(const char *text) {
    return td_fs_write_stdout(text, strlen(text));
}

static td_status enter(struct td_live *l) {
    struct termios raw = l->before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    if (l->has_keys && tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw) != 0) {
        return td_fail_errno(TD_UNAVAILABLE, "take the terminal");
    }
    l->shown = true;
    return put(ENTER);
}

static void leave(struct td_live *l) {
    if (!l->shown) return;
    l->shown = false;
    td_status_free(put(LEAVE)); // the terminal may be gone
    if (l->has_keys) (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &l->before);
}

// ---- events -------------------------------------------------------------------------------------
static void on_quit(void *arg) {
    struct td_live *l = arg;
    l->over = l->wakes = true;
}

static void on_resize(void *arg) {
    struct td_live *l = arg;
    l->wakes = true;
}

static void on_terminate(void *arg) {
    struct td_live *l = arg;
    l->ended_by = SIGTERM;
    l->over = l->wakes = true;
}

static void on_hang_up(void *arg) {
    struct td_live *l = arg;
    l->ended_by = SIGHUP;
    l->over = l->wakes = true;
}

// Ctrl-Z: the shell gets its terminal as it was, and it is taken again when the job goes on.
static void on_stop(void *arg) {
    struct td_live *l = arg;
    leave(l);
    (void)kill(getpid(), SIGSTOP);
    td_status_free(enter(l));
    l->wakes = true;
}

static void on_keys(int fd, void *arg) {
    struct td_live *l = arg;
    char key[64];
    const ssize_t n = read(fd, key, sizeof key);
    l->wakes = true;
    if (n <= 0) l->over = true;
    for (ssize_t i = 0; i < n; i++) {
        if (key[i] == 'q' || key[i] == 'Q') l->over = true;
    }
}

static td_status watch(struct td_live *l) {
    static const struct {
        int signo;
        td_loop_fn *fn;
    } rows[SIGNALS] = {{SIGINT, on_quit},
                       {SIGTERM, on_terminate},
                       {SIGHUP, on_hang_up},
                       {SIGWINCH, on_resize},
                       {SIGTSTP, on_stop}};
    for (int i = 0; i < SIGNALS; i++) {
        TD_TRY(td_loop_signal_create(l->loop, rows[i].signo, rows[i].fn, l, &l->signal[i]));
    }
    if (!l->has_keys) return TD_OK;
    return td_loop_fd_create(l->loop, STDIN_FILENO, 0, on_keys, l, &l->keys);
}

// ---- the terminal -------------------------------------------------------------------------------
td_status td_live_create(struct td_loop *loop, struct td_live **out_live) {
    TD_AUTO(td_live) *l = td_calloc(1, sizeof *l);
    if (!l) return td_fail_oom();
    l->loop = loop;
    l->has_keys = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &l->before) == 0;
    TD_TRY(watch(l));
    TD_TRY(enter(l));
    *out_live = td_steal(l);
    return TD_OK;
}

void td_live_destroy(struct td_live *l) {
    if (!l) return;
    leave(l);
    td_loop_fd_destroy(l->keys);
    for (int i = 0; i < SIGNALS; i++) {
        td_loop_signal_destroy(l->signal[i]);
    }
    free(l);
}

td_status td_live_show(struct td_live *l, const struct td_buf *text) {
    int columns, rows;
    TD_AUTO_BUF frame;
    td_buf_init(&frame, FRAME_MAX);
    if (!l->shown) return TD_OK;
    td_screen_size(STDOUT_FILENO, &columns, &rows);
    TD_TRY(td_buf_str(&frame, "\033[H"));
    const char *at = text->data, *end = text->data + text->len;
    for (int row = 0; row < rows && at < end; row++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline ? newline : end;
        TD_TRY(td_buf_append(&frame, at, (size_t)(stop - at)));
        TD_TRY(td_buf_str(&frame, row + 1 < rows && newline ? "\033[K\r\n" : "\033[K"));
        at = newline ? newline + 1 : end;
    }
    TD_TRY(td_buf_str(&frame, "\033[J"));
    return td_fs_write_stdout(frame.data, frame.len);
}

td_status td_live_wait(struct td_live *l, int64_t ns) {
    if (l->over) return TD_OK;
    l->wakes = false;
    return td_loop_run_for(l->loop, &l->wakes, ns);
}

bool td_live_is_over(const struct td_live *l) {
    return l->over;
}

int td_live_signal(const struct td_live *l) {
    return l->ended_by;
}
