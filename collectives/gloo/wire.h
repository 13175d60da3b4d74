#ifndef TRAIND_COLLECTIVES_GLOO_WIRE_H
#define TRAIND_COLLECTIVES_GLOO_WIRE_H

// What ranks of several nodes say to each other: the store's keys and values, what both ends of a
// connection begin with, and the frame before each call. Whoever changes one of these raises
// TD_RANKS_LANGUAGE (lib/attempt/languages.h), of which tests/unit/attempt/test_languages.c
// reminds. Numbers are in the machine's order: all nodes of a job have one.

#include <stdint.h>
#include <stdio.h>

enum { TD_WIRE_TOKEN_BYTES = 32, TD_WIRE_KEY_BYTES = 64 };

// What a node leaves in the store, under td_wire_key.
struct td_wire_record {
    char magic[8];
    uint32_t family, port;
    int32_t first_rank, n_ranks;
    uint8_t address[16];
    uint8_t token[TD_WIRE_TOKEN_BYTES];
};
static const char td_wire_record_magic[8] = "tdnode1";

static inline void td_wire_key(int32_t attempt, int32_t group, int32_t node,
                               char out[TD_WIRE_KEY_BYTES]) {
    char part[24] = "";
    if (group) snprintf(part, sizeof part, "group-%d/", group);
    snprintf(out, TD_WIRE_KEY_BYTES, "collective/a%d/%snode-%d", attempt, part, node);
}

// What both ends of a connection send: to the one that listens first, then back.
struct td_wire_greeting {
    char magic[8];
    int32_t from, to;
    uint8_t token[TD_WIRE_TOKEN_BYTES]; // of `to`
};
static const char td_wire_greeting_magic[8] = "tdmesh1";

enum { TD_BETWEEN_INLINE = 32 << 10 }; // bytes of data that a frame carries

enum td_between_kind {
    TD_BETWEEN_ALL_REDUCE,
    TD_BETWEEN_BUCKET,
    TD_BETWEEN_ALL_GATHER,
    TD_BETWEEN_BROADCAST,
    TD_BETWEEN_BARRIER,
    TD_BETWEEN_REDUCE,
    TD_BETWEEN_REDUCE_SCATTER,
    TD_BETWEEN_GATHER,
    TD_BETWEEN_SCATTER,
    TD_BETWEEN_ALL_GATHER_UNEVEN,
    TD_BETWEEN_ALL_TO_ALL,
    TD_BETWEEN_KINDS,
};

// What a node came for. Equal on all nodes, or the program is wrong.
struct td_between_call {
    uint8_t kind, dtype, op, is_cut; // is_cut: the tag has more bytes
    uint32_t detail;                 // a source, a destination, control flags, a digest of the tag
    int64_t n;                       // elements or bytes
    char tag[40];                    // barrier: how it begins; zeros after it
};

// Before what a call moves.
struct td_wire_frame {
    uint64_t number; // of the call, from 1
    struct td_between_call call;
    char data[TD_BETWEEN_INLINE];
};
_Static_assert(sizeof(struct td_wire_frame) - TD_BETWEEN_INLINE == 64,
               "a frame is sent without padding");

#endif
