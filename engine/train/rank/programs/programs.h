#ifndef TRAIND_ENGINE_TRAIN_RANK_PROGRAMS_PROGRAMS_H
#define TRAIND_ENGINE_TRAIN_RANK_PROGRAMS_PROGRAMS_H

// Programs: every variant of a step that a job runs, compiled before its first step.
//
// add() takes a key (step, mode, batch, accumulate, sync, apply) through the graph pipeline, once.
// bind() gives what came out to the accelerator, when state is laid out and memory is there. All
// programs of a rank share one block of step scalars and one of outputs. They share one arena, too:
// the next program overwrites the activations of the one before. Where forwards are kept, each
// training step has an arena of its own, and the first has that of all that do not train. find() is
// a short scan: a job has a dozen programs for each training step. Bound: TD_PROGRAMS_MAX. Thread:
// the training thread.
//
// The room, in reading order:
//
//   steps.h pattern.h  the training steps of the module, and what each of them trains
//   batches.h          which program each batch takes
//   optimizer.h        what one parameter gets
//   counted.h          gradients that are divided by what a window counted
//   dump.h             the text of a pass
//   uneven.h           batches that some ranks have fewer samples of
//   record.h           all programs of a job

#include "engine/graph/compile.h"
#include "traind/accelerator.h"
#include "traind/module.h"

enum { TD_PROGRAMS_MAX = 256, TD_PROGRAM_OUTPUTS = 32 };

struct td_programs;
// options: as for td_compile; its key is filled in by add. What it points at outlives the programs.
TD_MUST_USE td_status td_programs_create(const struct td_compile_options *options,
                                         bool keeps_forwards, struct td_programs **out_programs);
void td_programs_destroy(struct td_programs *p); // accepts NULL; releases the executables
TD_DEFINE_AUTO(td_programs, td_programs_destroy);

TD_MUST_USE td_status td_programs_add(struct td_programs *p, const struct td_program_key *key);
// What arena i has to hold; 0: there is none of that number.
size_t td_programs_arena_bytes(const struct td_programs *p, int i);
// arenas[i] is arena i; that of the bindings is not used.
TD_MUST_USE td_status td_programs_bind(struct td_programs *p, const struct td_accelerator_ops *ops,
                                       struct td_accelerator *accel,
                                       const struct td_bindings *bindings,
                                       const struct td_buffer arenas[TD_STEPS_MAX]);

// Lets the accelerator prepare program i, which is bound, for the sets of segments that will run.
TD_MUST_USE td_status td_programs_prepare(const struct td_programs *p, size_t i,
                                          const uint32_t *sets, size_t n);

struct td_runnable {
    struct td_executable *exe;
    const struct td_graph *graph;
    bool sums; // it reduces the last bucket, and the control flags after it
    // Its finish and apply segments read nothing that its other segments leave in the arena. So
    // they may run when other programs have run since.
    bool updates_alone;
};
// FAILED_PRECONDITION: no program of that key was added and bound.
TD_MUST_USE td_status td_programs_find(const struct td_programs *p,
                                       const struct td_program_key *key,
                                       struct td_runnable *out_runnable);
// Does every training program that ends a window sum the control flags?
bool td_programs_sum(const struct td_programs *p);
// Does any program of that mode have a node of that op?
bool td_programs_have(const struct td_programs *p, enum td_mode mode, td_op_id op);
// Of the first program of that mode; NULL: the job has none. step: the one of that training step;
// NULL: of any.
const struct td_graph *td_programs_graph(const struct td_programs *p, const char *step,
                                         enum td_mode mode);
// Kernels of bound programs that run on plain loops: how many, and which ("dropout f64, rope bf16")
// as far as there is room.
uint32_t td_programs_slow(const struct td_programs *p, char *out_text, size_t text_bytes);
// The same of programs that are not bound, as the accelerator expects it; 0 of one that cannot.
// Afterwards td_programs_slow_nodes answers by node.
TD_MUST_USE td_status td_programs_preview_slow(struct td_programs *p,
                                               const struct td_accelerator_ops *ops,
                                               struct td_accelerator *accel, char *out_text,
                                               size_t text_bytes, uint32_t *out_n);
// By node of program i, as expected; NULL: none runs on plain loops, or nobody asked.
const bool *td_programs_slow_nodes(const struct td_programs *p, size_t i);
// Parameters that no training program gives a gradient: how many, and which, as far as there is
// room.
uint32_t td_programs_unreached(const struct td_programs *p, char *out_text, size_t text_bytes);
// Kernel j of program i, as the accelerator's kernel_at.
bool td_programs_kernel(const struct td_programs *p, size_t i, uint32_t j,
                        struct td_kernel_info *out_info);
size_t td_programs_count(const struct td_programs *p);
const struct td_compiled *td_programs_at(const struct td_programs *p, size_t i);

#endif
