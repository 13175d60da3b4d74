// The image of a shard, written as any other file is. Nothing trains meanwhile, so its pages need
// not go past the cache, as those of a checkpoint do.

#include "engine/train/checkpoint/weights_file.h"

#include "engine/train/checkpoint/shard.h"
#include "lib/base/files/named_output.h"

static td_status classify(td_status s) {
    if (!s || td_status_class(s) != TD_CLASS_NONE) return s;
    bool named_wrong = td_status_code(s) == TD_NOT_FOUND;
    return td_status_with_class(s, named_wrong ? TD_CLASS_BAD_SPEC : TD_CLASS_DISK);
}

static td_status write_shard(const struct td_weights_file_options *o,
                             const struct td_restore_target *from, struct td_shard *s) {
    if (o->filter && !s->n_tensors) return td_bad_spec("the filter takes no tensor of the model");
    TD_AUTO_FREE char *image = td_calloc(td_shard_room(s), 1);
    if (!image) return td_fail_oom();
    td_shard_lay(s, image);
    const struct td_buffer to = td_buffer_of_host(image, td_shard_room(s));
    TD_TRY(td_shard_take(s, from->accel_ops, from->accel, from->memory, 0, to, 0, NULL));
    return classify(td_named_output_write(o->path, image, s->bytes, 0666,
                                          o->durable ? TD_FS_WRITE_DURABLE : 0));
}

td_status td_weights_file_write(const struct td_weights_file_options *o,
                                const struct td_restore_target *from) {
    struct td_shard shard;
    TD_TRY(td_shard_plan_some(from->state, 1u << TD_ROLE_PARAM | 1u << TD_ROLE_BUFFER,
                              td_manifest_file_of(TD_ROLE_PARAM), o->filter, o->filter_arg,
                              &shard));
    td_status s = write_shard(o, from, &shard);
    td_shard_finish(&shard);
    return td_status_context(s, "save weights");
}
