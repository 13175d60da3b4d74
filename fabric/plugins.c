// The only file that knows every in-tree plugin by name.

#include "fabric/plugins.h"

#include <stdio.h>
#include <string.h>

#include "accelerators/reference/reference.h"
#include "collectives/collectives.h"
#include "comm_hooks/comm_hooks.h"
#include "fabric/signals/symbol.h"
#include "precisions/precisions.h"
#include "strategies/strategies.h"
#include "workloads/workloads.h"

static const struct td_plugin_desc *const in_tree[] = {
    &td_accelerator_reference,
    &td_collective_local,
    &td_collective_shm,
    &td_collective_trace,
    &td_precision_fp32,
    &td_precision_fp64,
    &td_precision_bf16_true,
    &td_precision_fp16_true,
    &td_precision_bf16_mixed,
    &td_precision_fp16_mixed,
    &td_strategy_single_device,
    &td_strategy_ddp,
    &td_module_mlp,
    &td_module_convnet,
    &td_module_gpt,
    &td_module_llama,
    &td_dataset_idx,
    &td_dataset_synthetic,
    &td_dataset_text,
    &td_dataset_tokens,
    &td_dataset_npy,
    &td_comm_hook_fp16,
    &td_comm_hook_bf16,
    &td_comm_hook_power_sgd,
};

td_status td_built_in_plugins(struct td_registry *r) {
    for (size_t i = 0; i < TD_COUNTOF(in_tree); i++) {
        TD_TRY(td_registry_add(r, in_tree[i]));
    }
    return TD_OK;
}

const struct td_plugin_desc *td_built_in_plugin_at(size_t i) {
    return i < TD_COUNTOF(in_tree) ? in_tree[i] : NULL;
}

bool td_has_built_in_plugin(enum td_plugin_kind kind, const char *name) {
    for (size_t i = 0; i < TD_COUNTOF(in_tree); i++) {
        if (in_tree[i]->kind == kind && strcmp(in_tree[i]->name, name) == 0) return true;
    }
    return false;
}

td_status td_plugin_dir(char *out, size_t out_bytes) {
    char file[4000];
    if (!td_symbol_file(in_tree, file, sizeof file)) {
        return td_fail(TD_FAILED_PRECONDITION, "where libtraind.so is cannot be found out");
    }
    *strrchr(file, '/') = '\0';
    if ((size_t)snprintf(out, out_bytes, "%s/traind", file) >= out_bytes) {
        return td_fail(TD_FAILED_PRECONDITION, "the path of libtraind.so is too long");
    }
    return TD_OK;
}
