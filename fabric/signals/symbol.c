// _dl_find_object is the one call of glibc (2.35 and later) that finds a loaded object without a
// lock; it is what unwinders use. The object's own dynamic section then leads to the symbols that
// it exports. How many there are only its hash table knows: the last chain of it ends at the last
// one.

#include "fabric/signals/symbol.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/base.h"

struct symbols {
    const ElfW(Sym) * first;
    const char *names;
    const uint32_t *hash; // DT_GNU_HASH
};

static struct symbols symbols_of(const struct link_map *object) {
    struct symbols s = {0};
    for (const ElfW(Dyn) *d = object->l_ld; d->d_tag != DT_NULL; d++) {
        const void *at = (const void *)d->d_un.d_ptr;
        if (d->d_tag == DT_SYMTAB) s.first = at;
        if (d->d_tag == DT_STRTAB) s.names = at;
        if (d->d_tag == DT_GNU_HASH) s.hash = at;
    }
    return s;
}

static uint32_t count(const uint32_t *hash) {
    uint32_t n_buckets = hash[0], first = hash[1], bloom_words = hash[2], last = 0;
    const uint32_t *buckets = hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / sizeof *hash);
    for (uint32_t i = 0; i < n_buckets; i++) {
        last = TD_MAX(last, buckets[i]);
    }
    if (last < first) return 0; // nothing is exported
    while (!(buckets[n_buckets + last - first] & 1)) {
        last++;
    }
    return last + 1;
}

bool td_symbol_of(uintptr_t address, struct td_symbol *out_place) {
    struct dl_find_object found;
    if (_dl_find_object((void *)address, &found) != 0) return false;
    const struct link_map *object = found.dlfo_link_map;
    const char *slash = strrchr(object->l_name, '/');
    const char *file = slash ? slash + 1 : object->l_name;
    uintptr_t offset = address - object->l_addr;
    *out_place =
        (struct td_symbol){*file ? file : program_invocation_short_name, offset, object->l_name};
    struct symbols s = symbols_of(object);
    bool whole = s.first && s.names && s.hash;
    if (!whole || (uintptr_t)s.hash < object->l_addr) return true; // none, or not relocated (vdso)
    for (uint32_t i = 0, n = count(s.hash); i < n; i++) {
        const ElfW(Sym) *symbol = &s.first[i];
        if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || symbol->st_shndx == SHN_UNDEF) continue;
        if (offset < symbol->st_value || offset - symbol->st_value >= symbol->st_size) continue;
        *out_place = (struct td_symbol){s.names + symbol->st_name, offset - symbol->st_value,
                                        object->l_name};
        return true;
    }
    return true;
}

bool td_symbol_file(const void *address, char *out, size_t out_bytes) {
    Dl_info info;
    char real[PATH_MAX];
    if (!dladdr(address, &info) || !info.dli_fname || !realpath(info.dli_fname, real)) return false;
    size_t len = strlen(real);
    if (len >= out_bytes) return false;
    memcpy(out, real, len + 1);
    return true;
}
