#ifndef TRAIND_LIB_VERSION_VERSION_H
#define TRAIND_LIB_VERSION_VERSION_H

// Which commit this program was built from: "0.1.0+1480.g7f2520b9" (deploy/version.sh has the
// rule). For people and their logs: nothing is decided by it. What two programs must agree on has
// numbers and digests of its own.
//
// It grows with each commit, so one object of each program has it (version.c). libtraind.so has
// none: a commit that leaves the engine alone leaves its bytes, and with them the resume key
// (fabric/build.h). TD_VERSION, the release, is what the engine writes into files. Any thread.

enum { TD_VERSION_BYTES = 48 }; // room for one, with its end

extern const char td_version[];

#endif
