#ifndef TRAIND_TESTS_UNIT_FABRIC_FABRIC_RIG_H
#define TRAIND_TESTS_UNIT_FABRIC_FABRIC_RIG_H

// A small Fabric program that is set up: an mlp of 8, 16 and 4 on 64 synthetic samples, plain
// descent, in batches of 8.

#include "tests/unit/test.h"
#include "traind/fabric.h"

static inline struct td_fabric *set_up(const char *precision) {
    const struct td_fabric_options o = {.struct_bytes = sizeof o,
                                        .accelerator = "reference",
                                        .precision = precision,
                                        .threads = 1,
                                        .quiet = true};
    struct td_fabric *f;
    assert_ok(td_fabric_create(&o, &f));
    assert_ok(td_fabric_seed_everything(f, 3));
    assert_ok(td_fabric_setup_module(f, "{name: mlp, layers: [8, 16, 4]}"));
    assert_ok(td_fabric_setup_optimizers(f, "{name: sgd, lr: 0.5}", NULL));
    assert_ok(td_fabric_setup_dataloaders(f, "{name: synthetic, samples: 64, features: 8, "
                                             "classes: 4, batch_size: 8}"));
    assert_ok(td_fabric_setup(f));
    return f;
}

#endif
