// See the header. The library is never closed while it is in use, and closed after its shutdown.

#include "lib/nvml/calls.h"

#include <dlfcn.h>
#include <string.h>

#include "lib/base/clip.h"

enum { NAMES_MAX = 3 };

static const struct {
    const char *name[NAMES_MAX];
    size_t offset;
    bool is_needed;
} rows[] = {
#define TD_NVML_CALL(field, needed, parameters, ...)                                               \
    {.name = {__VA_ARGS__}, .offset = offsetof(struct td_nvml_calls, field), .is_needed = needed},
#include "lib/nvml/calls.def"
#undef TD_NVML_CALL
};

// Where drivers put it: where the loader looks, then where images of containers and WSL have it.
static const char *const homes[] = {"libnvidia-ml.so.1",
                                    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
                                    "/usr/lib/wsl/lib/libnvidia-ml.so.1"};

// why: of the first that it tried.
static void *open_object(const char *path, char *why, size_t why_bytes) {
    const size_t n = path[0] ? 1 : TD_COUNTOF(homes);
    why[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        void *object = dlopen(path[0] ? path : homes[i], RTLD_NOW | RTLD_LOCAL);
        if (object) return object;
        const char *said = dlerror();
        if (i == 0) (void)td_clip(why, why_bytes, "%s", said ? said : "no reason is given");
    }
    return NULL;
}

static td_status find(struct td_nvml_calls *c, size_t i) {
    void *symbol = NULL;
    for (unsigned char k = 0; !symbol && k < NAMES_MAX && rows[i].name[k]; k++) {
        symbol = dlsym(c->object, rows[i].name[k]);
        c->version[i] = k;
    }
    if (!symbol && rows[i].is_needed) {
        return td_fail(TD_UNIMPLEMENTED,
                       "the driver's library has no %s: it is another major version of NVML than "
                       "this build of traind knows",
                       rows[i].name[0]);
    }
    memcpy((char *)c + rows[i].offset, &symbol, sizeof symbol);
    return TD_OK;
}

td_status td_nvml_calls_open(const char *path, struct td_nvml_calls *out_calls) {
    char why[256];
    struct td_nvml_calls c = {.object = open_object(path, why, sizeof why)};
    if (!c.object) {
        return td_fail(TD_NOT_FOUND,
                       "no NVIDIA driver is installed here: its library does not load (%s); "
                       "install the driver, then start the daemon again",
                       why);
    }
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        td_status s = find(&c, i);
        if (s) {
            td_nvml_calls_close(&c);
            return s;
        }
    }
    *out_calls = c;
    return TD_OK;
}

void td_nvml_calls_close(struct td_nvml_calls *calls) {
    if (calls->object) (void)dlclose(calls->object);
    calls->object = NULL;
}

// ---- codes --------------------------------------------------------------------------------------
// None is NOT_FOUND or UNIMPLEMENTED: a driver that answers may answer otherwise later.
static const struct {
    int code;
    enum td_code as;
    const char *words;
} codes[] = {
    {1, TD_INTERNAL, "the library was not initialised"},
    {2, TD_INTERNAL, "the library refuses what it was given"},
    {TD_NVML_NOT_SUPPORTED, TD_UNAVAILABLE, "the device does not support it"},
    {TD_NVML_NO_PERMISSION, TD_PERMISSION_DENIED, "this user, or its cgroup, may not use it"},
    {5, TD_INTERNAL, "the library was initialised twice"},
    {TD_NVML_NOT_FOUND, TD_UNAVAILABLE, "there is no such device"},
    {TD_NVML_TOO_SMALL, TD_INTERNAL, "the answer is larger than its room"},
    {8, TD_UNAVAILABLE, "the device gets too little power: is each cable in its place?"},
    {TD_NVML_DRIVER_NOT_LOADED, TD_FAILED_PRECONDITION,
     "the NVIDIA driver is not loaded: load it (modprobe nvidia), or install it"},
    {TD_NVML_TIMEOUT, TD_DEADLINE_EXCEEDED, "the driver did not answer in its own time"},
    {11, TD_UNAVAILABLE, "the kernel has a problem with an interrupt of the device"},
    {12, TD_FAILED_PRECONDITION, "a library of the driver is missing: install the driver again"},
    {TD_NVML_NO_FUNCTION, TD_UNAVAILABLE, "the driver is too old for it"},
    {14, TD_DATA_LOSS, "the device's own record (infoROM) is damaged"},
    {TD_NVML_GPU_IS_LOST, TD_UNAVAILABLE,
     "the GPU is lost: it fell off the bus, or cannot be reached; reset it, or start the machine "
     "again"},
    {TD_NVML_RESET_REQUIRED, TD_UNAVAILABLE, "the GPU has to be reset before it works again"},
    {17, TD_UNAVAILABLE, "the operating system, or a cgroup, has blocked the device"},
    {TD_NVML_VERSION_MISMATCH, TD_FAILED_PRECONDITION,
     "the NVIDIA driver that is loaded and its library are of different versions, as after an "
     "update: start the machine again"},
    {19, TD_UNAVAILABLE, "the device is in use"},
    {20, TD_RESOURCE_EXHAUSTED, "the library has no memory left"},
    {21, TD_UNAVAILABLE, "there is no data"},
    {23, TD_RESOURCE_EXHAUSTED, "the device has no resources left for it"},
    {25, TD_INTERNAL, "the library has another version of this call"},
    {26, TD_UNAVAILABLE, "the library has this call no more"},
    {27, TD_UNAVAILABLE, "the driver is not ready yet"},
    {28, TD_UNAVAILABLE, "no GPU is here"},
    {999, TD_UNKNOWN, "the driver met an internal error, of which it says no more"},
};

const char *td_nvml_words(int code) {
    for (size_t i = 0; i < TD_COUNTOF(codes); i++) {
        if (codes[i].code == code) return codes[i].words;
    }
    return "the driver gives an error that this build of traind does not know";
}

td_status td_nvml_fail(const char *what, int code) {
    enum td_code as = TD_UNKNOWN;
    for (size_t i = 0; i < TD_COUNTOF(codes); i++) {
        if (codes[i].code == code) as = codes[i].as;
    }
    return td_fail(as, "%s: %s (NVML error %d)", what, td_nvml_words(code), code);
}
