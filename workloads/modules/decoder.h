#ifndef TRAIND_WORKLOADS_MODULES_DECODER_H
#define TRAIND_WORKLOADS_MODULES_DECODER_H

// A network that predicts the next token, gpt and llama alike. Rows of tokens come in. Each layer
// has two parts, and adds to what it is given what each makes of its norm. From what the last layer
// made come the loss, or the logits after one place of each row. What is a network's own is its
// form.
//
// A module of this kind begins with its decoder, so its slots are those below.
// Fields: "x" and "y" i32 (T), tokens and the tokens that follow them. Output: "loss" MEAN, over
// all tokens of the batch. Pure recording, as layers.h. Errors: what a person can mend is
// INVALID_ARGUMENT, class bad_spec.

#include "workloads/modules/loss.h"

// *h (B,T,C) -> (B,T,C), by parameters whose names begin with `name`.
typedef td_status td_decoder_part_fn(const struct td_module *m, struct td_graph *g,
                                     const char *name, td_value *h);
struct td_decoder_form {
    const char *module, *positions; // its name, and the knob that bounds T: for messages
    td_status (*read)(struct td_module *m, const struct td_json *knobs);
    void (*write_config)(struct td_module *m); // once sizes are known
    const char *prefix;                        // of names, which some files leave out: "model."
    const char *tokens, *head;                 // tables (V,C); head: unless it is that of tokens
    const char *layers, *last_norm;            // names of the first layer begin with "<layers>.0."
    // Tokens x (B,T) -> (B,T,C); NULL: by their table alone.
    td_status (*embed)(const struct td_module *m, struct td_graph *g, td_value x, td_value tokens,
                       td_value *out_h);
    td_decoder_part_fn *norm;
    struct td_decoder_part {
        const char *norm, *name;
        td_decoder_part_fn *record;
    } parts[2];
};

struct td_decoder {
    uint32_t magic;
    const struct td_decoder_form *form;
    struct td_xy fields;
    struct td_module_loss loss;
    int64_t n_layers, width;         // C
    int64_t block;                   // T
    int64_t n_positions, vocab_size; // 0: no knob says it, so it is the data's
    double initializer_range;
    bool tied;         // the head's table is that of tokens
    char config[2048]; // config.json
};

// bytes: of a td_module. Takes the fields, and the loss out of the module's knobs; sizes that are
// open become the data's.
TD_MUST_USE td_status td_decoder_open(const struct td_decoder_form *form, size_t bytes,
                                      const struct td_json *knobs, const struct td_field *fields,
                                      size_t n_fields, struct td_module **out_module);
// Whether a tensor is one of a kind that each layer of a foreign file has.
bool td_decoder_name_ends(const char *name, const char *end);
// A table (rows, C), by tokens or places.
TD_MUST_USE td_status td_decoder_table(const struct td_decoder *d, struct td_graph *g,
                                       const char *name, int64_t rows, td_value *out_table);

// ---- slots of the module ------------------------------------------------------------------------
void td_decoder_close(struct td_module *m);
// In predict mode the result is "logits" (B,V), of the places that td_decoder_aim chose.
TD_MUST_USE td_status td_decoder_record(struct td_module *m, struct td_graph *g, int64_t batch);
void td_decoder_aim(struct td_module *m, int64_t row, int64_t position, void *const *inputs);
const char *td_decoder_config(struct td_module *m);
const char *td_decoder_other_name(struct td_module *m, const char *name);

#endif
