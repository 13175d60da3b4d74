#ifndef TRAIND_FABRIC_CONFIGURE_DEVICES_H
#define TRAIND_FABRIC_CONFIGURE_DEVICES_H

// Devices of an accelerator as it lists them (device_at of traind/accelerator.h). What it says is
// checked here, because an accelerator may be anybody's plugin. One without that slot has no
// devices but the host: its list is empty. Nothing is opened. Any thread.
//
// Errors, class user_code: the accelerator names a device badly, or two alike, or has more than
// TD_DEVICES_MAX.

#include "engine/train/config/config.h"
#include "lib/base/buf.h"
#include "traind/accelerator.h"

// The index of the device with that uuid. FAILED_PRECONDITION, class device: there is none, and
// which there are.
TD_MUST_USE td_status td_devices_find(const char *accelerator, const struct td_accelerator_ops *ops,
                                      const struct td_accel_facts *facts, const char *uuid,
                                      int32_t *out_index);
// Of the job's accelerator; "" or NULL: nobody gave the rank one, and it takes that of its number
// on the node. Its plugins are in config->registry. Errors: INVALID_ARGUMENT (class bad_spec): the
// node has more ranks than devices.
TD_MUST_USE td_status td_devices_choose(const struct td_train_config *config, const char *uuid,
                                        int32_t *out_index);
// [{"uuid":"...","name":"...","memory_bytes":N}, ...]; null: its device is the host.
TD_MUST_USE td_status td_devices_print(const char *accelerator,
                                       const struct td_accelerator_ops *ops,
                                       const struct td_accel_facts *facts, struct td_buf *out);

#endif
