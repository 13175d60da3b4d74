// See the header. A list comes from a person's plugin by way of a planner, so each reader checks
// what it takes.

#include "lib/attempt/devices.h"

#include <stdio.h>
#include <string.h>

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("-_.:", c));
}

bool td_device_uuid_ok(const char *uuid) {
    size_t len = 0;
    while (is_letter(uuid[len])) {
        len++;
    }
    return len > 0 && len < TD_DEVICE_UUID && !uuid[len];
}

bool td_device_is_instance(const char *uuid) {
    return strncmp(uuid, "MIG-", 4) == 0;
}

bool td_device_is_gpu(const char *uuid) {
    return strncmp(uuid, "GPU-", 4) == 0 || td_device_is_instance(uuid);
}

bool td_device_list_at(const char *list, uint32_t i, char out_uuid[TD_DEVICE_UUID]) {
    const char *p = list;
    for (; i > 0; i--) {
        p += strcspn(p, ",");
        if (!*p) return false;
        p++;
    }
    size_t len = strcspn(p, ",");
    if (len >= TD_DEVICE_UUID) return false;
    snprintf(out_uuid, TD_DEVICE_UUID, "%.*s", (int)len, p);
    return td_device_uuid_ok(out_uuid);
}

uint32_t td_device_list_count(const char *list) {
    uint32_t n = *list != '\0';
    for (const char *p = list; *p; p++) {
        n += *p == ',';
    }
    return n;
}

bool td_device_list_has(const char *list, const char *uuid) {
    size_t len = strlen(uuid);
    for (const char *p = list; *p; p += *p == ',') {
        size_t n = strcspn(p, ",");
        if (n == len && memcmp(p, uuid, n) == 0) return true;
        p += n;
    }
    return false;
}
