#ifndef TRAIND_WORKLOADS_MODULES_DECODER_H
#define TRAIND_WORKLOADS_MODULES_DECODER_H

// The two ends of a network that predicts the next token, gpt and llama alike. Rows of tokens come
// in, and from what the last block made come the loss, or the logits after one place of each row.
// Fields: "x" and "y" i32 (T), tokens and the tokens that follow them. Output: "loss" MEAN, over
// all tokens of the batch. Pure recording, as layers.h. Errors: what a person can mend is
// INVALID_ARGUMENT, class bad_spec.

#include "workloads/modules/loss.h"

struct td_decoder {
    struct td_xy fields;
    struct td_module_loss loss;
    int64_t block;                   // T
    int64_t n_positions, vocab_size; // 0: no knob says it, so it is the data's
};

// Takes the fields, and the loss out of the module's knobs; sizes that are open become the data's.
// `module`, and `positions`, the knob that bounds T, are for messages. To be finished either way.
TD_MUST_USE td_status td_decoder_open(struct td_decoder *d, const char *module,
                                      const char *positions, const struct td_json *knobs,
                                      const struct td_field *fields, size_t n_fields);
void td_decoder_finish(struct td_decoder *d);
// Whether a tensor is one of a kind that each layer of a foreign file has.
bool td_decoder_name_ends(const char *name, const char *end);
// From h (B,T,C) and the head's table (V,C) to the loss; in predict mode to the result "logits"
// (B,V) of the places that td_decoder_aim chose.
TD_MUST_USE td_status td_decoder_predict(const struct td_decoder *d, struct td_graph *g, td_value h,
                                         td_value y, td_value head);
// The module's slot aim.
void td_decoder_aim(const struct td_decoder *d, int64_t row, int64_t position, void *const *inputs);

#endif
