// Bytes that strangers wrote: messages, statuses, descriptor sets, addresses. Each gives an answer
// or a named error, within its budget of memory.

#include "tests/unit/test.h"

#include "google/protobuf/any.pb-c.h"
#include "grpc/health/v1/health.pb-c.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "lib/rpc/address.h"
#include "lib/rpc/codec.h"
#include "lib/rpc/descriptor_set.h"
#include "lib/rpc/descriptors.h"
#include "lib/rpc/wire_status.h"
#include "traind/v1/job.pb-c.h"

static void assert_reason(td_status s, enum td_code code, const char *reason) {
    assert_int_equal(td_status_code(s), code);
    assert_string_equal(td_status_reason(s), reason);
    td_status_free(s);
}

// ---- messages ----

static void test_message_decodes_when_well_formed(void **state) {
    (void)state;
    struct td_rpc_message *m;
    const char bytes[] = "\x0a\x04spec\x12\x03"
                         "a=b\x12\x03"
                         "c=d";
    assert_true(td_rpc_message_decode(&traind__v1__create_job_request__descriptor, bytes,
                                      sizeof bytes - 1, &m) == TD_OK);
    const Traind__V1__CreateJobRequest *r = (const void *)td_rpc_message_get(m);
    assert_string_equal(r->spec, "spec");
    assert_int_equal(r->n_overrides, 2);
    assert_string_equal(r->overrides[1], "c=d");
    td_rpc_message_destroy(m);
}

// protobuf-c leaves NULL for the bytes of an empty field; the sanitizer sees what is added to it.
static void test_message_is_decoded_when_there_are_no_bytes(void **state) {
    (void)state;
    struct td_rpc_message *m;
    assert_ok(td_rpc_message_decode(&traind__v1__job__descriptor, NULL, 0, &m));
    assert_string_equal(((const Traind__V1__Job *)(const void *)td_rpc_message_get(m))->id, "");
    td_rpc_message_destroy(m);
}

static void test_message_is_malformed_when_a_length_lies(void **state) {
    (void)state;
    struct td_rpc_message *m;
    assert_reason(
        td_rpc_message_decode(&traind__v1__create_job_request__descriptor, "\x0a\x09spec", 6, &m),
        TD_INVALID_ARGUMENT, "MALFORMED_MESSAGE");
}

// protobuf-c takes field numbers that no message can have; the walk over the strings does not.
static void test_message_is_malformed_when_a_field_number_is_impossible(void **state) {
    (void)state;
    struct td_rpc_message *m;
    assert_reason(
        td_rpc_message_decode(&traind__v1__job__descriptor, "\xf8\xc3\x82\xc3\x28\x15", 6, &m),
        TD_INVALID_ARGUMENT, "MALFORMED_MESSAGE");
}

static void test_message_names_the_field_when_text_is_not_utf8(void **state) {
    (void)state;
    struct td_rpc_message *m;
    // HealthListResponse{statuses: {key: "\xff"}}
    td_status s = td_rpc_message_decode(&grpc__health__v1__health_list_response__descriptor,
                                        "\x0a\x03\x0a\x01\xff", 5, &m);
    assert_int_equal(td_status_n_fields(s), 1);
    const char *path, *text;
    td_status_field(s, 0, &path, &text);
    assert_string_equal(path, "statuses.key");
    assert_reason(s, TD_INVALID_ARGUMENT, "MALFORMED_MESSAGE");
}

static void test_message_names_the_field_when_text_has_a_nul(void **state) {
    (void)state;
    struct td_rpc_message *m;
    const ProtobufCMessageDescriptor *type = &traind__v1__create_job_request__descriptor;
    td_status s = td_rpc_message_decode(type, "\x12\x03x=1\x12\x03x\0y", 10, &m);
    const char *path, *text;
    td_status_field(s, 0, &path, &text);
    assert_string_equal(path, "overrides");
    assert_string_equal(text, "has a NUL character");
    assert_reason(s, TD_INVALID_ARGUMENT, "MALFORMED_MESSAGE");
    assert_ok(td_rpc_message_decode(type, "\x0a\0", 2, &m)); // an empty one
    td_rpc_message_destroy(m);
}

static void test_message_checks_only_the_chosen_member_when_in_a_oneof(void **state) {
    (void)state;
    struct td_rpc_message *m;
    const ProtobufCMessageDescriptor *type =
        &grpc__reflection__v1__server_reflection_request__descriptor;
    assert_true(td_rpc_message_decode(type, "\x2a\x04\x0a\x02xy", 6, &m) == TD_OK);
    td_rpc_message_destroy(m);
    assert_reason(td_rpc_message_decode(type, "\x2a\x04\x0a\x02x\xff", 6, &m), TD_INVALID_ARGUMENT,
                  "MALFORMED_MESSAGE");
}

static void test_message_is_too_large_when_it_swells(void **state) {
    (void)state;
    enum { N = 500000 };
    char *bytes = malloc(2 * N);
    assert_non_null(bytes);
    for (int i = 0; i < N; i++) {
        memcpy(bytes + 2 * i, "\x12", 2); // an empty override
    }
    struct td_rpc_message *m;
    assert_reason(
        td_rpc_message_decode(&traind__v1__create_job_request__descriptor, bytes, 2 * N, &m),
        TD_RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE");
    free(bytes);
}

static const ProtobufCMessageDescriptor recursive_type;
static const ProtobufCFieldDescriptor recursive_field = {
    .name = "child",
    .id = 1,
    .label = PROTOBUF_C_LABEL_NONE,
    .type = PROTOBUF_C_TYPE_MESSAGE,
    .descriptor = &recursive_type,
};
static const ProtobufCMessageDescriptor recursive_type = {
    .magic = PROTOBUF_C__MESSAGE_DESCRIPTOR_MAGIC,
    .name = "test.Recursive",
    .n_fields = 1,
    .fields = &recursive_field,
};

static void test_type_is_refused_when_it_contains_itself(void **state) {
    (void)state;
    assert_reason(td_rpc_type_check(&recursive_type), TD_INTERNAL, "");
    assert_true(td_rpc_type_check(&traind__v1__job__descriptor) == TD_OK);
}

static td_status decode_one(void *arg) {
    (void)arg;
    TD_AUTO(td_rpc_message) *m = NULL;
    return td_rpc_message_decode(&traind__v1__create_job_request__descriptor, "\x0a\x04spec", 6,
                                 &m);
}

static void test_message_fails_cleanly_when_memory_is_out(void **state) {
    (void)state;
    assert_int_equal(td_status_code(decode_one(NULL)), TD_CODE_OK);
    td_test_failing_allocations(decode_one, NULL);
}

// ---- status ----

static td_status round_trip(td_status s, const char *request_id) {
    struct td_wire_status w;
    td_wire_status_encode(s, request_id, &w);
    td_status back =
        td_wire_status_decode((int)w.code, (struct td_str){w.message, strlen(w.message)},
                              (struct td_str){w.details, w.details_bytes});
    td_wire_status_finish(&w);
    return back;
}

static void test_status_comes_back_whole_when_encoded(void **state) {
    (void)state;
    td_status s = td_fail(TD_FAILED_PRECONDITION, "needs 4 of 2 slots");
    s = td_status_with_reason(s, "UNSATISFIABLE");
    s = td_status_with_class(s, TD_CLASS_BAD_SPEC);
    s = td_status_with_meta(s, "needed", "%d", 4);
    s = td_status_with_field(s, "trainer.devices", "at most %d", 2);
    s = round_trip(s, "0123456789abcdef");
    assert_int_equal(td_status_code(s), TD_FAILED_PRECONDITION);
    assert_string_equal(td_status_message(s), "needs 4 of 2 slots");
    assert_string_equal(td_status_reason(s), "UNSATISFIABLE");
    assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
    assert_int_equal(td_status_n_meta(s), 2);
    const char *key, *value;
    td_status_meta(s, 0, &key, &value);
    assert_string_equal(key, "request_id");
    assert_string_equal(value, "0123456789abcdef");
    td_status_field(s, 0, &key, &value);
    assert_string_equal(key, "trainer.devices");
    assert_string_equal(value, "at most 2");
    td_status_free(s);
    assert_true(round_trip(TD_OK, NULL) == TD_OK);
}

static void test_status_takes_its_code_as_reason_when_it_has_none(void **state) {
    (void)state;
    assert_reason(round_trip(td_fail(TD_NOT_FOUND, "no job"), NULL), TD_NOT_FOUND, "NOT_FOUND");
}

static void test_status_stays_small_when_everything_is_long(void **state) {
    (void)state;
    char text[4000];
    memset(text, 'e', sizeof text);
    memcpy(text + 764, "\xe2\x82\xac\xe2\x82\xac", 6); // the cut falls into a character
    text[sizeof text - 1] = 0;
    td_status s = td_fail(TD_INVALID_ARGUMENT, "%s", text);
    for (int i = 0; i < 16; i++) {
        s = td_status_with_meta(s, "k", "%.200s", text);
    }
    for (int i = 0; i < 64; i++) {
        s = td_status_with_field(s, "path", "%.200s", text);
    }
    struct td_wire_status w;
    td_wire_status_encode(s, "id", &w);
    assert_true(strlen(w.message) <= TD_WIRE_MESSAGE_BYTES);
    assert_true(w.details_bytes > 0 && w.details_bytes <= TD_WIRE_DETAILS_BYTES);
    assert_int_equal(strlen(w.message), 767); // one euro sign fits, the next does not
    td_wire_status_finish(&w);
}

static void test_status_keeps_code_and_text_when_details_are_garbage(void **state) {
    (void)state;
    td_status s =
        td_wire_status_decode(14, (struct td_str){"gone", 4}, (struct td_str){"\xff\xff\xff", 3});
    assert_string_equal(td_status_message(s), "gone");
    assert_reason(s, TD_UNAVAILABLE, "");
    assert_reason(td_wire_status_decode(99, (struct td_str){"?", 1}, (struct td_str){NULL, 0}),
                  TD_UNKNOWN, "");
}

// ---- descriptor set ----

static struct td_descriptor_set *open_set(void) {
    struct td_str bytes = td_rpc_descriptors();
    struct td_descriptor_set *set;
    assert_true(td_descriptor_set_create(bytes.data, bytes.len, &set) == TD_OK);
    return set;
}

static void test_descriptor_set_knows_streams_and_maps(void **state) {
    (void)state;
    struct td_descriptor_set *set = open_set();
    struct td_descriptor_method m;
    assert_true(td_descriptor_set_method(set, "grpc.health.v1.Health", "Watch", &m));
    assert_true(m.server_streaming && !m.client_streaming);
    assert_int_equal(m.input.len, strlen("grpc.health.v1.HealthCheckRequest"));
    assert_true(td_descriptor_set_method(set, "grpc.reflection.v1.ServerReflection",
                                         "ServerReflectionInfo", &m));
    assert_true(m.server_streaming && m.client_streaming);
    assert_false(td_descriptor_set_method(set, "grpc.health.v1.Health", "Nonsense", &m));
    assert_true(td_descriptor_set_is_map_entry(set, "traind.v1.Job.MetricsEntry"));
    assert_false(td_descriptor_set_is_map_entry(set, "traind.v1.Job"));
    td_descriptor_set_destroy(set);
}

static void test_descriptor_set_finds_files_and_imports(void **state) {
    (void)state;
    struct td_descriptor_set *set = open_set();
    int file = td_descriptor_set_file(set, "google/rpc/status.proto");
    assert_true(file >= 0);
    assert_int_equal(td_descriptor_set_file_of(set, "google.rpc.Status"), file);
    assert_int_equal(td_descriptor_set_n_imports(set, file), 1);
    assert_int_equal(td_descriptor_set_import(set, file, 0),
                     td_descriptor_set_file(set, "google/protobuf/any.proto"));
    assert_int_equal(td_descriptor_set_file_of(set, "no.Such"), -1);
    assert_true(td_descriptor_set_file_bytes(set, file).len > 20);
    td_descriptor_set_destroy(set);
}

// Every cut and many single-byte changes: an answer or an error, nothing else.
static void test_descriptor_set_survives_when_bytes_are_broken(void **state) {
    (void)state;
    struct td_str good = td_rpc_descriptors();
    size_t n = TD_MIN(good.len, (size_t)6000);
    char *bytes = malloc(n);
    assert_non_null(bytes);
    for (size_t i = 0; i < 2 * n; i += 3) {
        memcpy(bytes, good.data, n);
        size_t len = i < n ? i : n;
        if (i >= n) bytes[i - n] = (char)(bytes[i - n] ^ (1 << (i % 8)));
        struct td_descriptor_set *set = NULL;
        char *exact = malloc(len ? len : 1); // so that a sanitizer sees one byte too far
        assert_non_null(exact);
        memcpy(exact, bytes, len);
        td_status s = td_descriptor_set_create(exact, len, &set);
        td_status_free(s);
        td_descriptor_set_destroy(set);
        free(exact);
    }
    free(bytes);
}

static td_status open_and_close(void *arg) {
    (void)arg;
    struct td_str bytes = td_rpc_descriptors();
    TD_AUTO(td_descriptor_set) *set = NULL;
    return td_descriptor_set_create(bytes.data, bytes.len, &set);
}

static void test_descriptor_set_fails_cleanly_when_memory_is_out(void **state) {
    (void)state;
    td_test_failing_allocations(open_and_close, NULL);
}

// ---- addresses ----

static void test_address_is_taken_when_loopback(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        {"127.0.0.1:0", "ipv4:127.0.0.1:0"},
        {"localhost:80", "ipv4:127.0.0.1:80"},
        {"[::1]:65535", "ipv6:[::1]:65535"},
        {"127.8.8.8:1", "ipv4:127.8.8.8:1"},
    };
    for (size_t i = 0; i < TD_COUNTOF(pairs); i++) {
        struct td_rpc_address a;
        char text[TD_RPC_TARGET_BYTES];
        assert_true(td_rpc_address_parse(pairs[i][0], &a) == TD_OK);
        assert_int_equal(a.reach, TD_RPC_LOOPBACK);
        td_rpc_address_target(&a, text, sizeof text);
        assert_string_equal(text, pairs[i][1]);
    }
}

static void test_address_is_no_loopback_when_others_could_reach_it(void **state) {
    (void)state;
    static const struct {
        const char *text, *target;
        enum td_rpc_reach reach;
        bool is_any;
    } rows[] = {
        {"0.0.0.0:1", "ipv4:0.0.0.0:1", TD_RPC_NETWORK, true},
        {"[::]:1", "ipv6:[::]:1", TD_RPC_NETWORK, true},
        {"10.0.0.1:1", "ipv4:10.0.0.1:1", TD_RPC_NETWORK, false},
        {"[fd00::7f]:2", "ipv6:[fd00::7f]:2", TD_RPC_NETWORK, false},
        {"example.org:1", "dns:///example.org:1", TD_RPC_NAME, false},
        {"localhost.example.org:1", "dns:///localhost.example.org:1", TD_RPC_NAME, false},
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        struct td_rpc_address a;
        char text[TD_RPC_TARGET_BYTES];
        assert_true(td_rpc_address_parse(rows[i].text, &a) == TD_OK);
        assert_int_equal(a.reach, rows[i].reach);
        assert_int_equal(td_rpc_address_is_any(&a), rows[i].is_any);
        td_rpc_address_target(&a, text, sizeof text);
        assert_string_equal(text, rows[i].target);
    }
}

static void test_address_is_refused_when_it_is_none(void **state) {
    (void)state;
    static const char *const nonsense[] = {
        "",     "127.0.0.1",    "127.0.0.1:",   "127.0.0.1:x", "127.0.0.1:65536",
        ":1",   "127.0.0.1:1 ", "127.0.0.1:-1", "127.1:1",     "a b:1",
        "a,b:1"};
    struct td_rpc_address a;
    for (size_t i = 0; i < TD_COUNTOF(nonsense); i++) {
        assert_reason(td_rpc_address_parse(nonsense[i], &a), TD_INVALID_ARGUMENT,
                      "ADDRESS_INVALID");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_message_decodes_when_well_formed),
        cmocka_unit_test(test_message_is_decoded_when_there_are_no_bytes),
        cmocka_unit_test(test_message_is_malformed_when_a_length_lies),
        cmocka_unit_test(test_message_is_malformed_when_a_field_number_is_impossible),
        cmocka_unit_test(test_message_names_the_field_when_text_is_not_utf8),
        cmocka_unit_test(test_message_names_the_field_when_text_has_a_nul),
        cmocka_unit_test(test_message_checks_only_the_chosen_member_when_in_a_oneof),
        cmocka_unit_test(test_message_is_too_large_when_it_swells),
        cmocka_unit_test(test_message_fails_cleanly_when_memory_is_out),
        cmocka_unit_test(test_type_is_refused_when_it_contains_itself),
        cmocka_unit_test(test_status_comes_back_whole_when_encoded),
        cmocka_unit_test(test_status_takes_its_code_as_reason_when_it_has_none),
        cmocka_unit_test(test_status_stays_small_when_everything_is_long),
        cmocka_unit_test(test_status_keeps_code_and_text_when_details_are_garbage),
        cmocka_unit_test(test_descriptor_set_knows_streams_and_maps),
        cmocka_unit_test(test_descriptor_set_finds_files_and_imports),
        cmocka_unit_test(test_descriptor_set_survives_when_bytes_are_broken),
        cmocka_unit_test(test_descriptor_set_fails_cleanly_when_memory_is_out),
        cmocka_unit_test(test_address_is_taken_when_loopback),
        cmocka_unit_test(test_address_is_no_loopback_when_others_could_reach_it),
        cmocka_unit_test(test_address_is_refused_when_it_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
