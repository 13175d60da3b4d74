// Patterns over RE2 (see pattern.h). RE2 never throws, but what it is made of may: strings and maps
// that find no memory.

#include "lib/pattern/pattern.h"

#include <exception>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <re2/re2.h>

struct td_pattern {
    explicit td_pattern(const char *text, const RE2::Options &o) : re(text, o) {
    }
    RE2 re;
    std::vector<std::string> names; // (groups + 1); "": it has none
};

namespace {

td_status refuse(const std::string &why) {
    return td_fail(TD_INVALID_ARGUMENT, "%s", why.c_str());
}

td_status create(const char *text, std::unique_ptr<td_pattern> &out) {
    RE2::Options o;
    o.set_max_mem(TD_PATTERN_MEMORY_BYTES);
    o.set_log_errors(false); // they are returned
    auto p = std::make_unique<td_pattern>(text, o);
    if (!p->re.ok()) return refuse(p->re.error());
    const int n = p->re.NumberOfCapturingGroups();
    if (n > TD_PATTERN_GROUPS) {
        return refuse("has " + std::to_string(n) + " groups, at most " +
                      std::to_string(TD_PATTERN_GROUPS) +
                      " are taken; (?:...) is a group without one");
    }
    p->names.resize((size_t)n + 1);
    for (const auto &[i, name] : p->re.CapturingGroupNames()) {
        p->names[(size_t)i] = name;
    }
    out = std::move(p);
    return TD_OK;
}

} // namespace

extern "C" td_status td_pattern_create(const char *text, struct td_pattern **out_pattern) {
    try {
        std::unique_ptr<td_pattern> p;
        td_status s = create(text, p);
        if (!s) *out_pattern = p.release();
        return s;
    } catch (const std::exception &e) {
        return td_fail(TD_RESOURCE_EXHAUSTED, "compile a pattern: %s", e.what());
    }
}

extern "C" void td_pattern_destroy(struct td_pattern *p) {
    delete p;
}

extern "C" int td_pattern_n_groups(const struct td_pattern *p) {
    return (int)p->names.size() - 1;
}

extern "C" const char *td_pattern_group(const struct td_pattern *p, int i) {
    const std::string &name = p->names[(size_t)i];
    return name.empty() ? nullptr : name.c_str();
}

extern "C" bool td_pattern_match(const struct td_pattern *p, const char *line, size_t bytes,
                                 struct td_pattern_part out_parts[TD_PATTERN_GROUPS + 1]) {
    re2::StringPiece parts[TD_PATTERN_GROUPS + 1];
    const int n = (int)p->names.size();
    const re2::StringPiece text(line, bytes);
    try {
        if (!p->re.Match(text, 0, bytes, RE2::UNANCHORED, parts, n)) return false;
    } catch (const std::exception &) {
        return false;
    }
    for (int i = 0; i < n; i++) {
        out_parts[i] = {parts[i].data(), (size_t)parts[i].size()};
    }
    return true;
}
