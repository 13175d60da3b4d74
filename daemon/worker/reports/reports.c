// See the header. The socket blocks where something is sent, and does not where it is read.

#include "daemon/worker/reports/reports.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/worker/reports/board.h"
#include "daemon/worker/reports/hf.h"
#include "daemon/worker/reports/lines.h"
#include "daemon/worker/reports/sink.h"
#include "lib/attempt/report_message.h"
#include "lib/base/files/files.h"
#include "lib/base/json.h"
#include "lib/base/log.h"
#include "lib/loop/loop.h"

enum { td_reports_magic = 0x72707274 };
enum { MESSAGES_A_TURN = 8, SETTINGS_BYTES = 4 << 20 };

struct td_reports {
    uint32_t magic;
    struct td_loop *loop;
    struct td_loop_fd *watch;
    struct td_loop_turn *turn;
    struct td_report_sink *sink;
    struct td_report_lines *lines; // NULL: not asked for, as the next
    struct td_hf *hf;
    struct td_board *board;
    int fd;
    bool ended; // by the launcher's word, not by its end
};

static void finish(struct td_reports *x) {
    td_loop_turn_destroy(x->turn);
    td_loop_fd_destroy(x->watch);
    td_report_lines_destroy(x->lines);
    td_hf_destroy(x->hf);
    td_board_destroy(x->board);
    td_report_sink_destroy(x->sink);
    td_loop_destroy(x->loop);
    x->magic = 0;
}

static void on_message(int fd, void *arg) {
    static char text[TD_REPORT_BLOCK]; // one thread
    struct td_reports *x = TD_CAST(td_reports, arg);
    for (int i = 0; i < MESSAGES_A_TURN; i++) {
        const ssize_t n = recv(fd, text, sizeof text, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (n == 0 && !td_fd_has_ended(fd)) continue;
        if (n <= 0 || text[0] == TD_REPORT_END) {
            x->ended = n > 0;
            td_loop_stop(x->loop);
            return;
        }
        if (text[0] == TD_REPORT_LINES && x->lines) {
            td_report_lines_take(x->lines, text + 1, (size_t)n - 1);
        }
        if (text[0] == TD_REPORT_KEPT_LINES && x->board) {
            td_board_begin(x->board, text + 1, (size_t)n - 1);
        }
        if (td_report_sink_is_gone(x->sink)) td_loop_stop(x->loop);
    }
}

static void on_turn(void *arg) {
    struct td_reports *x = TD_CAST(td_reports, arg);
    td_report_sink_flush(x->sink);
}

static td_status make_sources(struct td_reports *x, const struct td_json *settings) {
    const struct td_json *v = td_json_get(settings, "stdout");
    if (v) TD_TRY(td_report_lines_create(v, x->sink, &x->lines));
    v = td_json_get(settings, "tensorboard");
    if (v) TD_TRY(td_board_create(v, x->loop, x->sink, &x->board));
    v = td_json_get(settings, "hf");
    return v ? td_hf_create(v, x->loop, x->sink, &x->hf) : TD_OK;
}

static td_status start(struct td_reports *x, const char *text) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *settings = NULL;
    TD_TRY(td_arena_create(SETTINGS_BYTES, &arena));
    TD_TRY(td_report_sink_create(x->fd, &x->sink));
    TD_TRY_CTX(td_json_parse(arena, text, strlen(text), &settings), "--settings");
    TD_TRY(td_loop_create(&x->loop));
    TD_TRY(make_sources(x, settings));
    TD_TRY(td_loop_turn_create(x->loop, on_turn, x, &x->turn));
    return td_loop_fd_create(x->loop, x->fd, 0, on_message, x, &x->watch);
}

int td_worker_reports(int reports_fd, const char *settings) {
    struct td_reports x = {.magic = td_reports_magic, .fd = reports_fd};
    signal(SIGPIPE, SIG_IGN);
    td_status failed = start(&x, settings);
    if (!failed) {
        td_report_say(x.sink, "{\"ready\":true}\n");
        failed = td_loop_run(x.loop);
    }
    if (failed && x.sink) td_report_note(x.sink, "%s", td_status_message(failed));
    td_report_lines_destroy(x.lines); // what is left of it is said now
    x.lines = NULL;
    if (x.ended && x.board) td_board_end(x.board);
    if (x.ended) td_report_say(x.sink, "{\"over\":true}\n");
    if (x.sink) td_report_sink_flush(x.sink);
    const bool is_bad = failed && td_status_code(failed) == TD_INVALID_ARGUMENT;
    const int code = !failed ? TD_EXIT_DONE : is_bad ? TD_EXIT_BAD_SPEC : TD_EXIT_BUG;
    if (failed) td_status_log(TD_LOG_ERROR, failed, "traind-worker reports ends");
    finish(&x);
    return code;
}
