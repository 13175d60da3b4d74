#ifndef TRAIND_LIB_BASE_FILES_TFEVENTS_H
#define TRAIND_LIB_BASE_FILES_TFEVENTS_H

// Records of TensorBoard's event files, written and read.
//
// A file is records, one after another: length (8 bytes), masked crc32c of these 8 bytes, the
// bytes, masked crc32c of them; all little-endian. Each record is one `Event` of TensorFlow's
// event.proto. Three kinds are written. The first event of a file is its version. The start of
// a session makes a reader forget what it has of that step and later ones. A summary has scalars.
// Fields that are not of these are skipped when read. Events of others are read by who knows what
// is asked of them; here is the frame that all of them have. Pure functions of their arguments, any
// thread.

#include "lib/base/buf.h"

enum {
    TD_TFEVENT_MAX = 64 << 10, // bytes of one that is read
    TD_TFEVENT_TAG = 80,
    TD_TFEVENT_VALUES = 256, // of one that is read; further ones are not looked at
};

// A record is HEAD bytes, those of its event, and TAIL bytes.
enum { TD_TFRECORD_HEAD = 12, TD_TFRECORD_TAIL = 4 };
// How many bytes the event has, by the head of its record. False: the head is damaged.
bool td_tfrecord_head(const void *head, uint64_t *out_event_bytes);
// Are these the bytes that were written? Of a whole record with such an event.
bool td_tfrecord_holds(const void *record, size_t event_bytes);

uint32_t td_crc32c(const void *data, size_t bytes);

struct td_tfscalar {
    const char *tag;
    double value;
};
// Appends a record.
TD_MUST_USE td_status td_tfevent_version(int64_t real_ns, struct td_buf *out);
TD_MUST_USE td_status td_tfevent_start(int64_t real_ns, int64_t step, struct td_buf *out);
TD_MUST_USE td_status td_tfevent_scalars(int64_t real_ns, int64_t step,
                                         const struct td_tfscalar *scalar, size_t n,
                                         struct td_buf *out);

struct td_tfevent {
    int64_t step;
    size_t n; // scalars; 0: another kind of event
    char tag[TD_TFEVENT_VALUES][TD_TFEVENT_TAG];
};
// The record that data begins with; its length. 0: it is torn or damaged, or is no event.
size_t td_tfevent_read(const void *data, size_t bytes, struct td_tfevent *out_event);

#endif
