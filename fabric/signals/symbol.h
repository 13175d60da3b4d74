#ifndef TRAIND_FABRIC_SIGNALS_SYMBOL_H
#define TRAIND_FABRIC_SIGNALS_SYMBOL_H

// Place: what an address of code is called, for the last words of a rank that crashes.
//
// A function that a loaded object exports has a name; anything else is its file and an offset that
// addr2line(1) understands. Async-signal-safe: nothing is allocated, locked or opened. dladdr(3)
// would take the loader's lock, which the crashed thread may hold.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_symbol {
    const char *name; // "td_rank_step", else "libtraind.so"; the loader's memory
    uintptr_t offset; // from its beginning
    const char *file; // the object's path, as it was loaded; the loader's memory
};

// False: no object is loaded there.
bool td_symbol_of(uintptr_t address, struct td_symbol *out_place);

// The path of the object that holds an address. False: none does, or its path is too long. Not for
// a handler of signals.
bool td_symbol_file(const void *address, char *out, size_t out_bytes);

#endif
