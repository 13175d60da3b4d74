#ifndef TRAIND_CLIENT_SCREEN_FORMAT_H
#define TRAIND_CLIENT_SCREEN_FORMAT_H

// Small formats that people read. Those with an out return it.

#include <protobuf-c/protobuf-c.h>

#include "lib/base/base.h"

const char *td_format_bytes(uint64_t bytes, char out[32]);   // "2.7 MiB"
const char *td_format_count(double n, char out[32]);         // "41.2k"
const char *td_format_seconds(double seconds, char out[32]); // "1:05", "2:03:04"
// A value of a metric or a loss, in as many digits as a line has for one: "0.3238", "1.5e-07".
enum { TD_FORMAT_VALUE_BYTES = 32 };
const char *td_format_value(double v, char out[TD_FORMAT_VALUE_BYTES]);
// How long ago a time of an answer was: "12s", "5m", "3h", "2d". What is no such time is given
// back, as far as there is room; one that is still to come, because clocks differ, is "0s".
const char *td_format_age(const char *time, char out[32]);
// The name of an enum's value; that of a newer daemon is "UNKNOWN".
const char *td_format_enum(const ProtobufCEnumDescriptor *type, int value);

#endif
