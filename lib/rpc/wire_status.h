#ifndef TRAIND_LIB_RPC_WIRE_STATUS_H
#define TRAIND_LIB_RPC_WIRE_STATUS_H

// td_status to the three things a gRPC answer carries (code, grpc-message, the google.rpc.Status in
// `grpc-status-details-bin`), and back. This is the only place that knows ErrorInfo and BadRequest.
//
// Stock clients refuse trailers above 8 KiB, so all of it is bounded. The message is bounded at 768
// bytes (the full one, up to 2 KiB, is in the details), the details at 4608. Violations that do not
// fit are counted in a last one. Encoding cannot fail: without memory the details are left out.
// Pure; any thread. Private to lib/rpc.

#include "lib/base/base.h"

#define TD_WIRE_MESSAGE_BYTES 768
#define TD_WIRE_DETAILS_BYTES 4608

struct td_wire_status {
    enum td_code code;
    char message[TD_WIRE_MESSAGE_BYTES + 1];
    void *details; // serialized google.rpc.Status; NULL for OK
    size_t details_bytes;
};

// request_id may be NULL; it goes into the ErrorInfo's metadata.
void td_wire_status_encode(td_status take_status, const char *request_id,
                           struct td_wire_status *out_wire);
void td_wire_status_finish(struct td_wire_status *w);

// Code 0 gives TD_OK. Details that make no sense are ignored. Never fails otherwise.
TD_MUST_USE td_status td_wire_status_decode(int code, struct td_str message, struct td_str details);

#endif
