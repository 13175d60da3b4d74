#ifndef TRAIND_CLIENT_SCREEN_JSON_H
#define TRAIND_CLIENT_SCREEN_JSON_H

// proto3 JSON of any message, with the proto's field names (a frozen form, under test). Of what is
// JSON itself the name ends before "_json", and the value is no text.

#include <protobuf-c/protobuf-c.h>

#include "lib/base/buf.h"

// Appends m. indent: one field a line, 2 spaces a level.
TD_MUST_USE td_status td_message_json(const ProtobufCMessage *m, bool indent, struct td_buf *out);

#endif
