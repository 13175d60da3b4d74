#ifndef TRAIND_TESTS_COLLECTIVE_TRACE_H
#define TRAIND_TESTS_COLLECTIVE_TRACE_H

// Knobs of the decorator `trace` for programs that hold it to what every collective is held to: all
// traces go to one folder of the program, of few events each. Group setup and teardown of cmocka.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/arena.h"
#include "lib/base/json.h"

static struct td_json *trace_knobs;
static struct td_arena *trace_arena;
static char *trace_folder;

static int make_trace_knobs(void **state) {
    char text[128], template[] = "/tmp/td_trace_XXXXXX";
    (void)state;
    trace_folder = mkdtemp(template) ? strdup(template) : NULL;
    if (!trace_folder || td_arena_create(4096, &trace_arena)) return -1;
    const int n = snprintf(text, sizeof text, "{\"dir\":\"%s\",\"max_events\":50}", trace_folder);
    td_status s = td_json_parse(trace_arena, text, (size_t)n, &trace_knobs);
    td_status_free(s);
    return s ? -1 : 0;
}

static int drop_trace_knobs(void **state) {
    char path[128];
    (void)state;
    for (int r = 0; r < 4; r++) {
        snprintf(path, sizeof path, "%s/trace-a1-rank%d.json", trace_folder, r);
        unlink(path);
    }
    const int gone = rmdir(trace_folder);
    free(trace_folder);
    td_arena_destroy(trace_arena);
    return gone;
}

#endif
