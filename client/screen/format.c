// Numbers, spans, ages and names of values as people read them, for tables, for the bar of a
// follower, and for traind-run. Nothing here depends on a locale. Times are the server's, and its
// clock may be ahead of ours.

#include "client/screen/format.h"

#include <stdio.h>
#include <time.h>

#include "lib/base/clock.h"

const char *td_format_enum(const ProtobufCEnumDescriptor *type, int value) {
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(type, value);
    return v ? v->name : "UNKNOWN";
}

const char *td_format_bytes(uint64_t bytes, char out[32]) {
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes;
    size_t i = 0;
    while (v >= 1024 && i + 1 < TD_COUNTOF(unit)) {
        v /= 1024;
        i++;
    }
    snprintf(out, 32, i == 0 ? "%.0f %s" : "%.1f %s", v, unit[i]);
    return out;
}

const char *td_format_count(double n, char out[32]) {
    static const char *const unit[] = {"", "k", "M", "G", "T", "P"};
    size_t i = 0;
    while (n >= 1000 && i + 1 < TD_COUNTOF(unit)) {
        n /= 1000;
        i++;
    }
    snprintf(out, 32, i == 0 || n >= 1000 ? "%.4g%s" : "%.1f%s", n, unit[i]);
    return out;
}

const char *td_format_value(double v, char out[TD_FORMAT_VALUE_BYTES]) {
    snprintf(out, TD_FORMAT_VALUE_BYTES, "%.4g", v);
    return out;
}

const char *td_format_seconds(double seconds, char out[32]) {
    long s = seconds > 0 ? (long)(seconds + 0.5) : 0;
    if (s >= 3600) {
        snprintf(out, 32, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    } else {
        snprintf(out, 32, "%ld:%02ld", s / 60, s % 60);
    }
    return out;
}

const char *td_format_age(const char *time, char out[32]) {
    struct tm tm = {0};
    const char *end = strptime(time, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out, 32, "%s", time);
    if (!end || (*end != '.' && *end != 'Z')) return out;
    const int64_t s = td_real_now().ns / TD_NS_PER_S - (int64_t)timegm(&tm);
    if (s < 120) {
        snprintf(out, 32, "%llds", (long long)TD_MAX(s, (int64_t)0));
    } else if (s < 120 * 60) {
        snprintf(out, 32, "%lldm", (long long)(s / 60));
    } else if (s < 48 * 3600) {
        snprintf(out, 32, "%lldh", (long long)(s / 3600));
    } else {
        snprintf(out, 32, "%lldd", (long long)(s / 86400));
    }
    return out;
}
