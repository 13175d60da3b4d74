#ifndef TRAIND_WORKLOADS_WORKLOADS_H
#define TRAIND_WORKLOADS_WORKLOADS_H

// Workloads: what traind can train without a user's own shared object. Each is a plugin like any
// other (modules record graphs, datasets hand out samples by index). Only its descriptor has a name
// outside its file, and the worker's static plugin table lists them.
//
//   modules/mlp.c          perceptron of fully connected layers
//   modules/convnet.c      layers over images, as the spec lists them
//   modules/gpt.c          GPT-2
//   modules/llama.c        Llama 2 and 3
//                          (decoder.c: tokens in, loss out; config_json.c: is a foreign config.json
//                          that of this network? layers.c: what all modules have in common;
//                          activations.def: the activations they take; loss.c: what they minimize;
//                          rope_scaling.c: rotary angles for long rows)
//   datasets/idx.c         MNIST-like image sets: idx files, plain or gzip (idx_file.c reads one,
//                          idx_cache.c keeps the decoded set for all ranks of a node,
//                          by cache.c)
//   datasets/tokens.c      rows of token ids: llm.c's, NumPy's and bare files (tokens_file.c reads
//   one) datasets/text.c        rows of bytes out of text (for both, windows.c cuts rows, foreign.c
//                          knows files that are neither)
//   datasets/npy.c         any X.npy with labels y.npy, or both in an .npz (npy_file.c reads an
//                          array, zip_file.c finds it in an archive)
//   datasets/synthetic.c   random samples labelled by a random linear teacher
//                          (mapped.c: a file in memory and the words of a refusal; scan_loops.c:
//                          every element looked at; splits.c: names of the splits)

#include "traind/descriptor.h"

extern const struct td_plugin_desc td_module_mlp;
extern const struct td_plugin_desc td_module_convnet;
extern const struct td_plugin_desc td_module_gpt;
extern const struct td_plugin_desc td_module_llama;
extern const struct td_plugin_desc td_dataset_idx;
extern const struct td_plugin_desc td_dataset_npy;
extern const struct td_plugin_desc td_dataset_synthetic;
extern const struct td_plugin_desc td_dataset_text;
extern const struct td_plugin_desc td_dataset_tokens;

#endif
