#ifndef TRAIND_WORKLOADS_MODULES_LAYERS_H
#define TRAIND_WORKLOADS_MODULES_LAYERS_H

// What the in-tree modules have in common: the fields "x" and "y" of a batch, and layers whose
// parameters have torch's names and initial values. A layer takes the current value in *h and
// leaves its own there; `name` is the layer's path in the module ("fc1", "h.0.ln_1"), its
// parameters are <name>.weight and so on. Pure recording: nothing here keeps state. Graphs stay
// plain (matmul, then add, then relu); fusing them is a pass's work.
// Errors: what a person can mend is INVALID_ARGUMENT, class bad_spec.

#include "lib/base/base.h"
#include "lib/base/json.h"
#include "traind/module.h"

enum { TD_LAYER_NAME_BYTES = 96 };

struct td_shape td_shape_1(int64_t a);
struct td_shape td_shape_2(int64_t a, int64_t b);
// "3x28x28"
const char *td_shape_words(const struct td_shape *s, char *out, size_t out_bytes);

// ---- fields -------------------------------------------------------------------------------------
struct td_xy {
    struct td_field x, y;
    bool y_first; // the order of the fields is the dataset's
};
// Exactly the fields "x" and "y", in any order; `module` is for messages.
TD_MUST_USE td_status td_xy_take(const char *module, const struct td_field *fields, size_t n_fields,
                                 struct td_xy *out_xy);
TD_MUST_USE td_status td_xy_inputs(const struct td_xy *xy, struct td_graph *g, int64_t batch,
                                   td_value *out_x, td_value *out_y);

// ---- recording ----------------------------------------------------------------------------------
// A buffer: state that is saved but not trained.
TD_MUST_USE td_status td_layer_buffer(struct td_graph *g, const char *name,
                                      const struct td_shape *shape, struct td_init init,
                                      td_value *out_value);
// A parameter (rows, cols), normal around 0. marks: enum td_param_mark.
TD_MUST_USE td_status td_layer_normal(struct td_graph *g, const char *name, int64_t rows,
                                      int64_t cols, double deviation, unsigned marks,
                                      td_value *out_value);
// <layer>.<part>: a row that weight decay spares, of a norm or a bias.
TD_MUST_USE td_status td_layer_row(struct td_graph *g, const char *layer, const char *part,
                                   int64_t n, double initial, td_value *out_value);
// Nothing but in train mode with p > 0; `name` names its random numbers.
TD_MUST_USE td_status td_layer_dropout(struct td_graph *g, const char *name, double p, td_value *h);
// u8 -> f32 / 255; f32 stays.
TD_MUST_USE td_status td_layer_pixels(struct td_graph *g, enum td_dtype dtype, td_value *h);
TD_MUST_USE td_status td_layer_reshape(struct td_graph *g, const struct td_shape *shape,
                                       td_value *h);

#define TD_LEAKY_SLOPE 0.01 // torch's, where no knob gives one
// The builder of a row of activations.def. slope: of leaky_relu.
typedef td_status td_activation_fn(struct td_graph *g, td_value x, double slope, td_value *out_y);
// NULL: no activation is named so.
td_activation_fn *td_activation_find(const char *name);

// torch.nn.Linear: h (..., in) @ weight^T + bias, weight (out, in). marks: of the weight, enum
// td_param_mark; TD_PARAM_NOT_HIDDEN for the layer that gives the classes.
TD_MUST_USE td_status td_layer_linear(struct td_graph *g, const char *name, int64_t in, int64_t out,
                                      bool bias, unsigned marks, td_value *h);

#endif
