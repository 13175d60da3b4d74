// node device disable and node device enable: whether ranks get a GPU of a node. The answer is the
// node as it is then; its list says which GPU a beginning of a uuid means. Whether the uuid is one,
// and whose, is the coordinator's to say.

#include <string.h>

#include "client/nodes/gpus.h"
#include "client/nodes/nodes.h"
#include "client/screen/print.h"
#include "client/session/session.h"

static td_status ask(struct td_session *s, const char *method, const ProtobufCMessage *request,
                     struct td_rpc_message **out_answer) {
    return td_session_call(s, method, request, &traind__v1__node__descriptor, out_answer);
}

static td_status say(struct td_session *s, const Traind__V1__Node *n, const char *device,
                     const char *what) {
    if (td_output_is_json(s->flags->output)) return td_session_print_json(s, &n->base);
    if (s->flags->output == TD_OUTPUT_NAME) {
        td_print(stdout, "%s\n", n->id);
    } else {
        td_print(stdout, "%s of %s %s\n", td_gpus_whole_uuid(n->gpus, device), n->name, what);
    }
    return TD_OK;
}

td_status td_cmd_node_device_disable(struct td_session *s, const struct td_flags *f,
                                     int *out_exit) {
    (void)out_exit;
    TD_AUTO(td_rpc_message) *answer = NULL;
    Traind__V1__DisableDeviceRequest request = TRAIND__V1__DISABLE_DEVICE_REQUEST__INIT;
    request.node = td_unconst(f->args[0]);
    request.device = td_unconst(f->args[1]);
    if (f->reason) request.reason = td_unconst(f->reason);
    TD_TRY(ask(s, "/traind.v1.NodeAdminService/DisableDevice", &request.base, &answer));
    return say(s, (const Traind__V1__Node *)td_rpc_message_get(answer), f->args[1],
               "is excluded: no rank gets it; what runs on it goes on");
}

td_status td_cmd_node_device_enable(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    TD_AUTO(td_rpc_message) *answer = NULL;
    Traind__V1__EnableDeviceRequest request = TRAIND__V1__ENABLE_DEVICE_REQUEST__INIT;
    request.node = td_unconst(f->args[0]);
    request.device = td_unconst(f->args[1]);
    TD_TRY(ask(s, "/traind.v1.NodeAdminService/EnableDevice", &request.base, &answer));
    return say(s, (const Traind__V1__Node *)td_rpc_message_get(answer), f->args[1],
               "is not excluded: ranks get it");
}
