// See the header.

#include "daemon/worker/reports/hf.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "daemon/worker/reports/hf_report.h"
#include "daemon/worker/reports/http.h"
#include "daemon/worker/reports/sink.h"
#include "lib/attempt/segments.h"
#include "lib/base/clip.h"
#include "lib/base/clock.h"
#include "lib/base/files/files.h"

enum { td_hf_magic = 0x74646866, RANK_DIGITS = 9 };
#define DEADLINE_NS (5 * TD_NS_PER_S)

// What is noted once of a rank.
enum noted { NOTED_LARGE, NOTED_NO_REPORT, NOTED_SLOW, NOTED_ODD, NOTED_COUNT };

struct rank {
    char token[TD_TOKEN_HEX];
    struct td_hf_said said;
    bool noted[NOTED_COUNT];
};

struct td_hf {
    uint32_t magic;
    int32_t first_rank, n_ranks;
    struct rank *rank; // (n_ranks)
    struct td_report_sink *sink;
    struct td_arena *arena; // of one report
    struct td_http *http;
    bool noted_stranger;
};

static void note_once(struct td_hf *hf, int32_t who, enum noted what, const char *text) {
    bool *noted = &hf->rank[who].noted[what];
    if (!*noted) {
        td_report_note(hf->sink, "rank %d, reports of Hugging Face's Trainer: %s",
                       hf->first_rank + who, text);
    }
    *noted = true;
}

// ---- who posts ----------------------------------------------------------------------------------
// "/12": index of rank 12; -1: it is no rank of this node.
static int32_t rank_of(const struct td_hf *hf, const struct td_http_head *head) {
    int32_t rank = 0;
    if (head->path_bytes < 2 || head->path_bytes > 1 + RANK_DIGITS) return -1;
    for (size_t i = 1; i < head->path_bytes; i++) {
        const char digit = head->path[i];
        if (digit < '0' || digit > '9') return -1;
        rank = rank * 10 + (digit - '0');
    }
    rank -= hf->first_rank;
    return rank >= 0 && rank < hf->n_ranks ? rank : -1;
}

// How long it takes does not depend on the bytes.
static bool is_token(const struct rank *r, const struct td_http_head *head) {
    volatile unsigned char differs = 0;
    if (head->token_bytes != sizeof r->token - 1) return false;
    for (size_t i = 0; i < sizeof r->token - 1; i++) {
        differs |= (unsigned char)(r->token[i] ^ head->token[i]);
    }
    return differs == 0;
}

static int admit(void *arg, const struct td_http_head *head, int32_t *out_who) {
    const struct td_hf *hf = TD_CAST(td_hf, arg);
    const int32_t who = rank_of(hf, head);
    if (who < 0) return 404;
    if (!is_token(&hf->rank[who], head)) return 401;
    *out_who = who;
    return 200;
}

// ---- what it says -------------------------------------------------------------------------------
static void hand_on(struct td_hf *hf, int32_t who, const struct td_hf_report *r) {
    struct td_report report = {.rank = hf->first_rank + who,
                               .step = r->value_step,
                               .total_steps = r->total_steps,
                               .epoch = r->epoch};
    if (r->n_values) {
        td_report_begin(hf->sink, &report);
        for (size_t i = 0; i < r->n_values; i++) {
            td_report_value(hf->sink, r->value[i].name, r->value[i].value);
        }
        td_report_end(hf->sink);
    }
    if (r->step < 0 && r->total_steps < 0 && r->epoch < 0) return;
    report.step = r->step;
    td_report_begin(hf->sink, &report);
    td_report_end(hf->sink);
}

static int take(void *arg, int32_t who, const char *body, size_t bytes) {
    struct td_hf *hf = TD_CAST(td_hf, arg);
    struct td_hf_report report;
    char text[256];
    td_arena_reset(hf->arena);
    td_status s = td_hf_report_read(&hf->rank[who].said, hf->arena, body, bytes, &report);
    if (s) {
        (void)td_clip(text, sizeof text, "one is not taken, as others like it: %s",
                      td_status_message(s));
        note_once(hf, who, NOTED_NO_REPORT, text);
        td_status_free(s);
        return 400;
    }
    if (report.n_odd) {
        (void)td_clip(text, sizeof text,
                      "'%.80s' is '%.80s', which is no number; such values are dropped",
                      report.odd_name, report.odd_text);
        note_once(hf, who, NOTED_ODD, text);
    }
    hand_on(hf, who, &report);
    return 200;
}

static void on_refused(void *arg, int32_t who, int status) {
    struct td_hf *hf = TD_CAST(td_hf, arg);
    char text[160];
    if (who < 0 && status == 401 && !hf->noted_stranger) {
        hf->noted_stranger = true;
        td_report_note(hf->sink, "a process of this machine posted to where ranks report without "
                                 "the token of its rank: it was refused (401), as others like it");
    } else if (who >= 0 && status == 413) {
        snprintf(
            text, sizeof text,
            "one has over %d bytes and is dropped (413), as are others like it; log fewer names",
            TD_HF_BODY_MAX);
        note_once(hf, who, NOTED_LARGE, text);
    } else if (who >= 0 && status == 408) {
        snprintf(text, sizeof text, "one was not whole after %d s and is dropped (408)",
                 (int)(DEADLINE_NS / TD_NS_PER_S));
        note_once(hf, who, NOTED_SLOW, text);
    }
}

// ---- life ---------------------------------------------------------------------------------------
static td_status read_token(const char *dir, int32_t rank, char out_token[TD_TOKEN_HEX]) {
    char path[TD_FS_PATH_BYTES];
    TD_AUTO_BUF text;
    td_buf_init(&text, TD_TOKEN_HEX);
    TD_TRY(td_fs_path(path, "%s/" TD_SEGMENT_TOKEN, dir, (unsigned)rank));
    TD_TRY(td_fs_read(path, TD_TOKEN_HEX, &text));
    if (text.len != TD_TOKEN_HEX - 1) {
        return td_fail(TD_DATA_LOSS, "'%s' is not a token of this attempt", path);
    }
    memcpy(out_token, text.data, text.len);
    return TD_OK;
}

td_status td_hf_create(const struct td_json *settings, struct td_loop *loop,
                       struct td_report_sink *sink, struct td_hf **out_hf) {
    const int32_t first_rank = (int32_t)td_json_int(td_json_get(settings, "first_rank"), 0);
    const int32_t n_ranks = (int32_t)td_json_int(td_json_get(settings, "n_ranks"), 0);
    if (first_rank < 0 || n_ranks < 1 || n_ranks > TD_LAUNCH_RANKS_MAX) {
        return td_fail(TD_INVALID_ARGUMENT, "--settings: `hf` has no ranks");
    }
    TD_AUTO(td_hf) *hf = td_calloc(1, sizeof *hf);
    if (!hf) return td_fail_oom();
    *hf = (struct td_hf){.magic = td_hf_magic, .first_rank = first_rank, .sink = sink};
    hf->rank = td_calloc((size_t)n_ranks, sizeof *hf->rank);
    if (!hf->rank) return td_fail_oom();
    hf->n_ranks = n_ranks;
    for (int32_t i = 0; i < n_ranks; i++) {
        const char *dir = td_json_string(td_json_get(settings, "dir"), "");
        TD_TRY(read_token(dir, first_rank + i, hf->rank[i].token));
    }
    TD_TRY(td_arena_create(TD_HF_ARENA_BYTES, &hf->arena));
    const struct td_http_options o = {.listen_fd =
                                          (int)td_json_int(td_json_get(settings, "fd"), -1),
                                      .max_body_bytes = TD_HF_BODY_MAX,
                                      .deadline_ns = DEADLINE_NS,
                                      .admit = admit,
                                      .take = take,
                                      .refused = on_refused,
                                      .arg = hf};
    TD_TRY(td_http_create(loop, &o, &hf->http));
    *out_hf = td_steal(hf);
    return TD_OK;
}

void td_hf_destroy(struct td_hf *hf) {
    if (!hf) return;
    td_http_destroy(hf->http);
    td_arena_destroy(hf->arena);
    for (int32_t i = 0; i < hf->n_ranks; i++) {
        td_hf_said_finish(&hf->rank[i].said);
    }
    free(hf->rank);
    hf->magic = 0;
    free(hf);
}
