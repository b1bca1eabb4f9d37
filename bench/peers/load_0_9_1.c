// A load for brokers of AMQP 0-9-1, on librabbitmq: one producer and one consumer, each a thread with
// a connection of its own, on one queue.
//
//   load_0_9_1 HOST PORT COUNT SIZE MODE
//
// MODE is `fast` (transient, no confirms, automatic acknowledgement), `confirmed` (transient,
// confirms, manual acknowledgement, prefetch 500), `durable` (as confirmed, persistent on a durable
// queue) or `latency` (one message in flight, transient). It prints seconds for all messages, or for
// `latency` the median and the 99th percentile of microseconds, as JSON.

#include <amqp.h>
#include <amqp_tcp_socket.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WINDOW = 500, EVERY = 100 };

static const char *host, *mode;
static int port;
static long count;
static size_t size;
static char *body;
static int durable, confirmed, latency;
static double *samples;
static amqp_bytes_t queue;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void die(const char *what) {
    fprintf(stderr, "load_0_9_1: %s\n", what);
    exit(1);
}

static void check(amqp_rpc_reply_t reply, const char *what) {
    if (reply.reply_type != AMQP_RESPONSE_NORMAL) die(what);
}

static amqp_connection_state_t connected(void) {
    amqp_connection_state_t c = amqp_new_connection();
    amqp_socket_t *socket = amqp_tcp_socket_new(c);
    if (!socket || amqp_socket_open(socket, host, port)) die("no connection");
    check(amqp_login(c, "/", 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, "guest", "guest"), "login");
    amqp_channel_open(c, 1);
    check(amqp_get_rpc_reply(c), "channel");
    return c;
}

static void publish(amqp_connection_state_t c) {
    amqp_basic_properties_t properties = {0};
    properties._flags = AMQP_BASIC_DELIVERY_MODE_FLAG;
    properties.delivery_mode = durable ? 2 : 1;
    amqp_bytes_t bytes = {size, body};
    if (amqp_basic_publish(c, 1, amqp_empty_bytes, queue, 0, 0, &properties, bytes)) die("publish");
}

// Read one confirm; return the number up to which everything is confirmed.
static unsigned long confirm(amqp_connection_state_t c) {
    amqp_frame_t frame;
    static unsigned long single;
    amqp_maybe_release_buffers(c);
    if (amqp_simple_wait_frame(c, &frame)) die("confirm");
    if (frame.frame_type != AMQP_FRAME_METHOD || frame.payload.method.id != AMQP_BASIC_ACK_METHOD)
        die("a confirm was expected");
    amqp_basic_ack_t *ack = frame.payload.method.decoded;
    // Brokers may confirm out of order; what counts is how many are open.
    if (ack->multiple) single = ack->delivery_tag;
    else single++;
    return single;
}

static void *produce(void *unused) {
    (void)unused;
    amqp_connection_state_t c = connected();
    if (confirmed) {
        amqp_confirm_select(c, 1);
        check(amqp_get_rpc_reply(c), "confirm.select");
    }
    unsigned long told = 0;
    for (long sent = 0; sent < count; sent++) {
        while (confirmed && sent - (long)told >= WINDOW) told = confirm(c);
        publish(c);
    }
    while (confirmed && (long)told < count) told = confirm(c);
    amqp_channel_close(c, 1, AMQP_REPLY_SUCCESS);
    amqp_connection_close(c, AMQP_REPLY_SUCCESS);
    amqp_destroy_connection(c);
    return NULL;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    if (argc != 6) die("HOST PORT COUNT SIZE MODE");
    host = argv[1];
    port = atoi(argv[2]);
    count = atol(argv[3]);
    size = (size_t)atol(argv[4]);
    mode = argv[5];
    durable = !strcmp(mode, "durable");
    confirmed = durable || !strcmp(mode, "confirmed");
    latency = !strcmp(mode, "latency");
    body = calloc(1, size);
    queue = amqp_cstring_bytes("load");

    amqp_connection_state_t c = connected();
    amqp_queue_delete(c, 1, queue, 0, 0);
    amqp_get_rpc_reply(c);
    amqp_queue_declare(c, 1, queue, 0, durable, 0, 0, amqp_empty_table);
    check(amqp_get_rpc_reply(c), "queue.declare");
    if (confirmed) amqp_basic_qos(c, 1, 0, WINDOW, 0);
    amqp_basic_consume(c, 1, queue, amqp_empty_bytes, 0, !confirmed, 0, amqp_empty_table);
    check(amqp_get_rpc_reply(c), "basic.consume");

    pthread_t producer;
    amqp_connection_state_t sender = NULL;
    double begun = now();
    if (latency) {
        sender = connected();
        samples = calloc((size_t)count, sizeof *samples);
    } else if (pthread_create(&producer, NULL, produce, NULL)) die("thread");
    for (long got = 0; got < count; got++) {
        double at = now();
        if (latency) publish(sender);
        amqp_envelope_t envelope;
        amqp_maybe_release_buffers(c);
        check(amqp_consume_message(c, &envelope, NULL, 0), "consume");
        if (latency) samples[got] = (now() - at) * 1e6;
        if (envelope.message.body.len != size) die("a body of another size");
        if (confirmed && ((got + 1) % EVERY == 0 || got + 1 == count))
            if (amqp_basic_ack(c, 1, envelope.delivery_tag, 1)) die("ack");
        amqp_destroy_envelope(&envelope);
    }
    double seconds = now() - begun;
    if (!latency) pthread_join(producer, NULL);
    if (latency) {
        qsort(samples, (size_t)count, sizeof *samples, ascending);
        printf("{\"median\": %.1f, \"p99\": %.1f}\n", samples[count / 2], samples[count * 99 / 100]);
    } else
        printf("{\"seconds\": %.4f}\n", seconds);
    return 0;
}
