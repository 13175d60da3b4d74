// The test accelerator far as a shared object that a job's `plugins` may list: what
// accelerators/far has, with what a plugin exports. The Makefile links the two
// (build/tests/plugins/accelerator-far.so).

#include "accelerators/far/far.h"
#include "traind/plugin.h"

#define td_plugin_here td_accelerator_far
TD_PLUGIN_EXPORTS
