#ifndef TRAIND_FABRIC_FABRIC_H
#define TRAIND_FABRIC_FABRIC_H

// fabric: what a process needs that holds a rank, be it traind-worker or a program of somebody's
// own. It is the top of libtraind.so; the worker adds verbs, a program adds its loop.
//
// In reading order:
//
//   plugins.h            what is linked in
//   configure.h          from a plan to the engine's configuration
//   method.h             how the weights move
//   user_plugins.h       what a plan names of plugins, and which of its own files are loaded
//   known_precision.h    what trainer.precision: auto was
//   devices.h            which device of an accelerator is the rank's
//   build.h              which build this is
//   config.h             which rank this program is
//   attach.h             what a launcher handed down
//   stop_signals.h       who asks for a stop
//   fatal.h, place.h     last words, and the names in them

#endif
