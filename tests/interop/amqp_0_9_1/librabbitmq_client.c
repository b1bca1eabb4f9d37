// A program that tries features with librabbitmq. What it reads and writes is in features/trial.py.
//
// Of a question it reads the fields that it needs: they are on one line, without escapes.

#include <amqp.h>
#include <amqp_framing.h>
#include <amqp_ssl_socket.h>
#include <amqp_tcp_socket.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

static char line[4096];
static char entity[128], host[64], user[64], password[64], authority[512];
static int port, tls_port;

static jmp_buf failed;
static char error[300];

static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error, sizeof error, format, arguments);
    va_end(arguments);
    for (char *at = error; *at; at++)
        if (*at == '"' || *at == '\\' || (unsigned char)*at < ' ') *at = '\'';
    longjmp(failed, 1);
}

static const char *field(const char *name, char *into, size_t size) {
    char key[64];
    snprintf(key, sizeof key, "\"%s\": ", name);
    const char *start = strstr(line, key);
    if (!start) fail("the question has no %s", name);
    start += strlen(key);
    if (*start == '"') start++;
    size_t length = strcspn(start, "\",}");
    snprintf(into, size, "%.*s", (int)length, start);
    return into;
}

static void read_question(void) {
    char number[16];
    field("entity", entity, sizeof entity);
    field("host", host, sizeof host);
    field("user", user, sizeof user);
    field("password", password, sizeof password);
    field("authority", authority, sizeof authority);
    port = atoi(field("port", number, sizeof number));
    tls_port = atoi(field("tls_port", number, sizeof number));
}

// Return the code of a close that the reply brought, 0 if it is right.
static int code_of(amqp_rpc_reply_t reply) {
    if (reply.reply_type == AMQP_RESPONSE_NORMAL) return 0;
    if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION) {
        fail("%s", amqp_error_string2(reply.library_error));
    }
    if (reply.reply.id == AMQP_CONNECTION_CLOSE_METHOD)
        return ((amqp_connection_close_t *)reply.reply.decoded)->reply_code;
    return ((amqp_channel_close_t *)reply.reply.decoded)->reply_code;
}

static void right(amqp_rpc_reply_t reply) {
    int code = code_of(reply);
    if (code) fail("the broker answers %d", code);
}

static void refused(amqp_connection_state_t on, int wanted) {
    int code = code_of(amqp_get_rpc_reply(on));
    if (code != wanted) fail("%d instead of %d", code, wanted);
}

static amqp_bytes_t bytes(const char *text) { return amqp_cstring_bytes(text); }

static amqp_bytes_t name(void) { return bytes(entity); }

static amqp_connection_state_t open_as(const char *login, const char *with, const char *vhost,
                                       int secure, int wanted) {
    amqp_connection_state_t on = amqp_new_connection();
    amqp_socket_t *socket = secure ? amqp_ssl_socket_new(on) : amqp_tcp_socket_new(on);
    if (secure) {
        if (amqp_ssl_socket_set_cacert(socket, authority)) fail("the authority cannot be read");
        amqp_ssl_socket_set_verify_peer(socket, 1);
        amqp_ssl_socket_set_verify_hostname(socket, 1);
    }
    int status = amqp_socket_open(socket, secure ? "localhost" : host, secure ? tls_port : port);
    if (status) fail("connect: %s", amqp_error_string2(status));
    int code = code_of(amqp_login(on, vhost, 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, login, with));
    if (code != wanted) fail("login: %d instead of %d", code, wanted);
    if (!wanted) {
        amqp_channel_open(on, 1);
        right(amqp_get_rpc_reply(on));
    }
    return on;
}

static amqp_connection_state_t open_channel(void) { return open_as(user, password, "/", 0, 0); }

static void end(amqp_connection_state_t on) {
    amqp_connection_close(on, AMQP_REPLY_SUCCESS);
    amqp_destroy_connection(on);
}

static void declare(amqp_connection_state_t on, amqp_table_t arguments) {
    amqp_queue_declare(on, 1, name(), 0, 0, 1, 0, arguments);
    right(amqp_get_rpc_reply(on));
}

static void put(amqp_connection_state_t on, const char *text,
                const amqp_basic_properties_t *properties) {
    if (amqp_basic_publish(on, 1, amqp_empty_bytes, name(), 0, 0, properties, bytes(text)))
        fail("publish failed");
}

static void same(amqp_bytes_t came, const char *wanted) {
    if (came.len != strlen(wanted) || memcmp(came.bytes, wanted, came.len))
        fail("%.*s instead of %s", (int)came.len, (char *)came.bytes, wanted);
}

// Consume a message; the caller destroys it.
static void take(amqp_connection_state_t on, amqp_envelope_t *envelope) {
    struct timeval patience = {15, 0};
    amqp_maybe_release_buffers(on);
    right(amqp_consume_message(on, envelope, &patience, 0));
}

static void consume_from(amqp_connection_state_t on, int no_ack) {
    amqp_basic_consume(on, 1, name(), bytes("tag"), 0, no_ack, 0, amqp_empty_table);
    right(amqp_get_rpc_reply(on));
}

static void queue_declare(void) {
    amqp_connection_state_t on = open_channel();
    amqp_queue_declare_ok_t *ok = amqp_queue_declare(on, 1, name(), 0, 1, 0, 0, amqp_empty_table);
    right(amqp_get_rpc_reply(on));
    same(ok->queue, entity);
    amqp_confirm_select(on, 1);
    put(on, "one", NULL);
    amqp_frame_t frame;
    amqp_simple_wait_frame(on, &frame);
    if (amqp_queue_purge(on, 1, name())->message_count != 1) fail("another count of messages");
    amqp_queue_delete(on, 1, name(), 0, 0);
    right(amqp_get_rpc_reply(on));
    end(on);
}

static void topic(void) {
    amqp_connection_state_t on = open_channel();
    amqp_bytes_t exchange = bytes("amq.topic");
    declare(on, amqp_empty_table);
    char pattern[200], key[200];
    snprintf(pattern, sizeof pattern, "%s.#", entity);
    snprintf(key, sizeof key, "%s.a.b", entity);
    amqp_queue_bind(on, 1, name(), exchange, bytes(pattern), amqp_empty_table);
    right(amqp_get_rpc_reply(on));
    amqp_basic_publish(on, 1, exchange, bytes("another"), 0, 0, NULL, bytes("no"));
    amqp_basic_publish(on, 1, exchange, bytes(key), 0, 0, NULL, bytes("one"));
    consume_from(on, 1);
    amqp_envelope_t envelope;
    take(on, &envelope);
    same(envelope.message.body, "one");
    same(envelope.routing_key, key);
    amqp_destroy_envelope(&envelope);
    end(on);
}

static void properties(void) {
    amqp_connection_state_t on = open_channel();
    declare(on, amqp_empty_table);
    amqp_basic_properties_t given;
    memset(&given, 0, sizeof given);
    given._flags = AMQP_BASIC_CONTENT_TYPE_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG |
                   AMQP_BASIC_CORRELATION_ID_FLAG | AMQP_BASIC_TIMESTAMP_FLAG |
                   AMQP_BASIC_PRIORITY_FLAG;
    given.content_type = bytes("text/plain");
    given.delivery_mode = 2;
    given.correlation_id = bytes("c-1");
    given.timestamp = 1700000000;
    given.priority = 5;
    put(on, "one", &given);
    consume_from(on, 1);
    amqp_envelope_t envelope;
    take(on, &envelope);
    amqp_basic_properties_t *came = &envelope.message.properties;
    if (came->_flags != given._flags) fail("flags %x instead of %x", came->_flags, given._flags);
    same(came->content_type, "text/plain");
    same(came->correlation_id, "c-1");
    if (came->delivery_mode != 2 || came->timestamp != 1700000000 || came->priority != 5)
        fail("another property came");
    amqp_destroy_envelope(&envelope);
    end(on);
}

static amqp_field_value_t *value_of(amqp_table_t *table, const char *key) {
    for (int each = 0; each < table->num_entries; each++) {
        amqp_bytes_t found = table->entries[each].key;
        if (found.len == strlen(key) && !memcmp(found.bytes, key, found.len))
            return &table->entries[each].value;
    }
    fail("the header %s is missing", key);
    return NULL;
}

static void header_types(void) {
    amqp_connection_state_t on = open_channel();
    declare(on, amqp_empty_table);
    // What these kinds are called in a message: b B s u I i l f d t S x T V.
    amqp_table_entry_t entries[14];
    const uint8_t kinds[] = {
        AMQP_FIELD_KIND_I8,   AMQP_FIELD_KIND_U8,   AMQP_FIELD_KIND_I16,     AMQP_FIELD_KIND_U16,
        AMQP_FIELD_KIND_I32,  AMQP_FIELD_KIND_U32,  AMQP_FIELD_KIND_I64,     AMQP_FIELD_KIND_F32,
        AMQP_FIELD_KIND_F64,  AMQP_FIELD_KIND_BOOLEAN, AMQP_FIELD_KIND_UTF8,
        AMQP_FIELD_KIND_BYTES, AMQP_FIELD_KIND_TIMESTAMP, AMQP_FIELD_KIND_VOID};
    static const char *names[] = {"i8",  "u8",   "i16",  "u16",   "i32",  "u32", "i64",
                                  "f32", "f64", "bool", "utf8", "bytes", "time", "void"};
    for (int each = 0; each < 14; each++) {
        memset(&entries[each], 0, sizeof entries[each]);
        entries[each].key = bytes(names[each]);
        entries[each].value.kind = kinds[each];
        switch (kinds[each]) {
            case AMQP_FIELD_KIND_I8: entries[each].value.value.i8 = -7; break;
            case AMQP_FIELD_KIND_U8: entries[each].value.value.u8 = 200; break;
            case AMQP_FIELD_KIND_I16: entries[each].value.value.i16 = -700; break;
            case AMQP_FIELD_KIND_U16: entries[each].value.value.u16 = 60000; break;
            case AMQP_FIELD_KIND_I32: entries[each].value.value.i32 = -70000; break;
            case AMQP_FIELD_KIND_U32: entries[each].value.value.u32 = 4000000000u; break;
            case AMQP_FIELD_KIND_I64: entries[each].value.value.i64 = -(1LL << 40); break;
            case AMQP_FIELD_KIND_F32: entries[each].value.value.f32 = 0.5f; break;
            case AMQP_FIELD_KIND_F64: entries[each].value.value.f64 = 0.25; break;
            case AMQP_FIELD_KIND_BOOLEAN: entries[each].value.value.boolean = 1; break;
            case AMQP_FIELD_KIND_UTF8: entries[each].value.value.bytes = bytes("text"); break;
            case AMQP_FIELD_KIND_BYTES: entries[each].value.value.bytes = bytes("raw"); break;
            case AMQP_FIELD_KIND_TIMESTAMP: entries[each].value.value.u64 = 1700000000; break;
            default: break;
        }
    }
    amqp_basic_properties_t given;
    memset(&given, 0, sizeof given);
    given._flags = AMQP_BASIC_HEADERS_FLAG;
    given.headers.num_entries = 14;
    given.headers.entries = entries;
    put(on, "one", &given);
    consume_from(on, 1);
    amqp_envelope_t envelope;
    take(on, &envelope);
    amqp_table_t *came = &envelope.message.properties.headers;
    for (int each = 0; each < 14; each++) {
        uint8_t kind = value_of(came, names[each])->kind;
        if (kind != kinds[each])
            fail("the header %s has the kind %c instead of %c", names[each], kind, kinds[each]);
    }
    int8_t small = value_of(came, "i8")->value.i8;
    float half = value_of(came, "f32")->value.f32;
    if (small != -7 || half != 0.5f) fail("another value of a header came");
    amqp_destroy_envelope(&envelope);
    end(on);
}

static void large(void) {
    enum { SIZE = 1 << 20 };
    amqp_connection_state_t on = open_channel();
    declare(on, amqp_empty_table);
    amqp_bytes_t body = amqp_bytes_malloc(SIZE);
    memset(body.bytes, 'x', SIZE);
    if (amqp_basic_publish(on, 1, amqp_empty_bytes, name(), 0, 0, NULL, body)) fail("publish");
    consume_from(on, 1);
    amqp_envelope_t envelope;
    take(on, &envelope);
    if (envelope.message.body.len != SIZE || memcmp(envelope.message.body.bytes, body.bytes, SIZE))
        fail("another body came");
    amqp_destroy_envelope(&envelope);
    amqp_bytes_free(body);
    end(on);
}

static void confirms(void) {
    amqp_connection_state_t on = open_channel();
    declare(on, amqp_empty_table);
    amqp_confirm_select(on, 1);
    right(amqp_get_rpc_reply(on));
    for (int number = 0; number < 10; number++) put(on, "one", NULL);
    uint64_t confirmed = 0;
    while (confirmed < 10) {
        amqp_frame_t frame;
        struct timeval patience = {15, 0};
        amqp_maybe_release_buffers(on);
        if (amqp_simple_wait_frame_noblock(on, &frame, &patience)) fail("no confirmation came");
        if (frame.payload.method.id != AMQP_BASIC_ACK_METHOD) fail("another method came");
        confirmed = ((amqp_basic_ack_t *)frame.payload.method.decoded)->delivery_tag;
    }
    end(on);
}

static void get(void) {
    amqp_connection_state_t on = open_channel();
    declare(on, amqp_empty_table);
    amqp_rpc_reply_t reply = amqp_basic_get(on, 1, name(), 0);
    right(reply);
    if (reply.reply.id != AMQP_BASIC_GET_EMPTY_METHOD) fail("the queue is not empty");
    put(on, "one", NULL);
    reply = amqp_basic_get(on, 1, name(), 0);
    right(reply);
    if (reply.reply.id != AMQP_BASIC_GET_OK_METHOD) fail("no message came");
    amqp_message_t message;
    right(amqp_read_message(on, 1, &message, 0));
    same(message.body, "one");
    amqp_destroy_message(&message);
    amqp_basic_ack(on, 1, 1, 0);
    end(on);
}

static void consume(void) {
    amqp_connection_state_t on = open_channel();
    declare(on, amqp_empty_table);
    amqp_basic_qos(on, 1, 0, 5, 0);
    right(amqp_get_rpc_reply(on));
    consume_from(on, 0);
    char text[16];
    for (int number = 0; number < 20; number++) {
        snprintf(text, sizeof text, "%d", number);
        put(on, text, NULL);
    }
    for (int number = 0; number < 20; number++) {
        amqp_envelope_t envelope;
        take(on, &envelope);
        snprintf(text, sizeof text, "%d", number);
        same(envelope.message.body, text);
        amqp_basic_ack(on, 1, envelope.delivery_tag, 0);
        amqp_destroy_envelope(&envelope);
    }
    amqp_basic_cancel(on, 1, bytes("tag"));
    right(amqp_get_rpc_reply(on));
    end(on);
}

static void requeue(void) {
    amqp_connection_state_t on = open_channel();
    declare(on, amqp_empty_table);
    put(on, "one", NULL);
    consume_from(on, 0);
    amqp_envelope_t envelope;
    take(on, &envelope);
    amqp_basic_nack(on, 1, envelope.delivery_tag, 0, 1);
    amqp_destroy_envelope(&envelope);
    take(on, &envelope);
    if (!envelope.redelivered) fail("the message is not said to come again");
    amqp_basic_reject(on, 1, envelope.delivery_tag, 0);
    amqp_destroy_envelope(&envelope);
    end(on);
}

static void tx_commit(void) {
    amqp_connection_state_t on = open_channel();
    declare(on, amqp_empty_table);
    amqp_tx_select(on, 1);
    right(amqp_get_rpc_reply(on));
    put(on, "one", NULL);
    amqp_tx_commit(on, 1);
    right(amqp_get_rpc_reply(on));
    if (amqp_queue_purge(on, 1, name())->message_count != 1) fail("another count of messages");
    end(on);
}

static void tx_rollback(void) {
    amqp_connection_state_t on = open_channel();
    declare(on, amqp_empty_table);
    amqp_tx_select(on, 1);
    put(on, "one", NULL);
    amqp_tx_rollback(on, 1);
    right(amqp_get_rpc_reply(on));
    if (amqp_queue_purge(on, 1, name())->message_count != 0) fail("another count of messages");
    end(on);
}

static void not_found(void) {
    amqp_connection_state_t on = open_channel();
    amqp_queue_declare(on, 1, bytes("missing"), 1, 0, 0, 0, amqp_empty_table);
    refused(on, 404);
    end(on);
}

static void precondition(void) {
    amqp_connection_state_t on = open_channel();
    declare(on, amqp_empty_table);
    amqp_queue_declare(on, 1, name(), 0, 0, 1, 1, amqp_empty_table);
    refused(on, 406);
    end(on);
}

static void wrong_password(void) { open_as(user, "wrong", "/", 0, 403); }

static void wrong_host(void) { open_as(user, password, "missing", 0, 530); }

static void tls(void) {
    amqp_connection_state_t on = open_as(user, password, "/", 1, 0);
    declare(on, amqp_empty_table);
    put(on, "one", NULL);
    consume_from(on, 1);
    amqp_envelope_t envelope;
    take(on, &envelope);
    same(envelope.message.body, "one");
    amqp_destroy_envelope(&envelope);
    end(on);
}

static const struct {
    const char *name;
    void (*play)(void);
} cases[] = {
    {"queue-declare", queue_declare},
    {"topic", topic},
    {"properties", properties},
    {"header-types", header_types},
    {"large", large},
    {"confirms", confirms},
    {"get", get},
    {"consume", consume},
    {"requeue", requeue},
    {"tx-commit", tx_commit},
    {"tx-rollback", tx_rollback},
    {"not-found", not_found},
    {"precondition", precondition},
    {"wrong-password", wrong_password},
    {"wrong-host", wrong_host},
    {"tls", tls},
};

int main(void) {
    while (fgets(line, sizeof line, stdin)) {
        char asked[64];
        void (*volatile play)(void) = NULL;
        error[0] = 0;
        if (!setjmp(failed)) {
            field("case", asked, sizeof asked);
            for (size_t each = 0; each < sizeof cases / sizeof *cases; each++)
                if (!strcmp(cases[each].name, asked)) play = cases[each].play;
            if (!play) {
                puts("{\"absent\": true}");
                fflush(stdout);
                continue;
            }
            read_question();
            play();
        }
        printf("{\"error\": \"%s\"}\n", error);
        fflush(stdout);
    }
    return 0;
}
