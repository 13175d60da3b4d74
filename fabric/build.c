// The linker writes a digest of what it links into a note of the library, which is in memory as
// soon as the process runs. A library without that note is read and hashed, which takes some
// milliseconds of every start.

#include "fabric/build.h"

#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/digest.h"
#include "lib/base/files/files.h"
#include "lib/base/machine/proc.h"

enum { ENGINE_MAX_BYTES = 256 << 20, HEX_BYTES = 8 };

static const char *const library = "libtraind.so";

static size_t padded(size_t n) {
    return (n + 3) / 4 * 4;
}

// The note of kind NT_GNU_BUILD_ID among those in [at, at + bytes); NULL: none.
static const uint8_t *find_id(const uint8_t *at, size_t bytes) {
    ElfW(Nhdr) note;
    while (bytes >= sizeof note) {
        memcpy(&note, at, sizeof note);
        size_t name = padded(note.n_namesz), body = padded(note.n_descsz);
        if (bytes - sizeof note < name || bytes - sizeof note - name < body) return NULL;
        const uint8_t *text = at + sizeof note;
        bool gnu = note.n_namesz == 4 && memcmp(text, "GNU", 4) == 0;
        if (gnu && note.n_type == NT_GNU_BUILD_ID && note.n_descsz >= HEX_BYTES) return text + name;
        at += sizeof note + name + body;
        bytes -= sizeof note + name + body;
    }
    return NULL;
}

static int look(struct dl_phdr_info *object, size_t bytes, void *arg) {
    (void)bytes;
    const uint8_t **out_id = arg;
    const char *slash = strrchr(object->dlpi_name, '/');
    if (strcmp(slash ? slash + 1 : object->dlpi_name, library) != 0) return 0;
    for (int i = 0; i < object->dlpi_phnum && !*out_id; i++) {
        const ElfW(Phdr) *p = &object->dlpi_phdr[i];
        const void *at = (const void *)(object->dlpi_addr + p->p_vaddr);
        if (p->p_type == PT_NOTE) *out_id = find_id(at, p->p_memsz);
    }
    return 1;
}

static td_status hash_library(uint64_t *out_digest) {
    char dir[4000], path[TD_FS_PATH_BYTES];
    TD_TRY(td_proc_self_dir(dir, sizeof dir));
    TD_TRY(td_fs_path(path, "%s/../lib/%s", dir, library));
    TD_AUTO_BUF engine;
    td_buf_init(&engine, ENGINE_MAX_BYTES);
    TD_TRY(td_fs_read(path, ENGINE_MAX_BYTES, &engine));
    *out_digest = td_xxh3_64(engine.data, engine.len);
    return TD_OK;
}

td_status td_build_name(char out_name[TD_BUILD_NAME]) {
    const uint8_t *id = NULL;
    uint64_t digest = 0;
    dl_iterate_phdr(look, &id);
    if (!id) TD_TRY(hash_library(&digest));
    for (int i = 0; id && i < HEX_BYTES; i++) {
        digest = digest << 8 | id[i];
    }
    snprintf(out_name, TD_BUILD_NAME, "%s+%016llx", TD_VERSION, (unsigned long long)digest);
    return TD_OK;
}
