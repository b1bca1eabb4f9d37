// A load for brokers of AMQP 0-9-1, on librabbitmq: one producer and one consumer, each a thread with
// a connection of its own, on one queue.
//
//   load_0_9_1 HOST PORT COUNT SIZE MODE CALLS
//
// MODE is `fast` (transient, no confirms, automatic acknowledgement), `confirmed` (transient,
// confirms, manual acknowledgement, prefetch 500), `durable` (as confirmed, persistent on a durable
// queue), `latency` (one message in flight, transient), or `bare`: the bytes of `latency` through a
// process that passes on what it reads, without a look at it. That is the least that any broker takes
// here.
//
// CALLS is `single` for the calls that most programs make: amqp_basic_publish, amqp_consume_message
// and an acknowledgement for each message. They cost more than what a fast broker does for the
// message. `burst` is for the same frames with less work: the library encodes up to 100 messages
// into one write, the consumer takes frames without copying bodies, and one acknowledgement stands
// for 100 messages.
//
// It prints JSON: the seconds for all messages, or for `latency` the median and the 99th percentile
// in microseconds, and the seconds of processor time of this process in that time, with `bare` those of
// the relay, too.

#include "relay.h"

#include <amqp.h>
#include <amqp_framing.h>
#include <amqp_tcp_socket.h>
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// Messages without a confirm, the consumer's prefetch, and messages of a burst.
enum { WINDOW = 500, BURST = 100, ENVELOPE = 8, MOST_HEAD = 512 };

static const char *host;
static int port, durable, confirmed, latency, burst;
static long count;
static size_t size;
static char *body;
static amqp_bytes_t queue;

static double clock_of(clockid_t which) {
    struct timespec t;
    clock_gettime(which, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static double now(void) { return clock_of(CLOCK_MONOTONIC); }

static double processor(void) { return clock_of(CLOCK_PROCESS_CPUTIME_ID); }

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

// ── Frames of several messages in one write ───────────────────────────────────────────────────

static char *outgoing;
static size_t filled;

// Put the envelope of a frame around a payload that is in its place already.
static void enclose(int type, size_t payload) {
    unsigned char *at = (unsigned char *)outgoing + filled;
    at[0] = (unsigned char)type;
    at[1] = 0;
    at[2] = 1;
    for (int i = 0; i < 4; i++) at[3 + i] = (unsigned char)(payload >> (24 - 8 * i));
    at[7 + payload] = AMQP_FRAME_END;
    filled += payload + ENVELOPE;
}

static void put_method(amqp_method_number_t id, void *method) {
    unsigned char *at = (unsigned char *)outgoing + filled + 7;
    for (int i = 0; i < 4; i++) at[i] = (unsigned char)(id >> (24 - 8 * i));
    amqp_bytes_t room = {MOST_HEAD, at + 4};
    int length = amqp_encode_method(id, method, room);
    if (length < 0) die("a method cannot be encoded");
    enclose(AMQP_FRAME_METHOD, (size_t)length + 4);
}

static void put_message(void) {
    amqp_basic_publish_t method = {0};
    method.routing_key = queue;
    put_method(AMQP_BASIC_PUBLISH_METHOD, &method);

    amqp_basic_properties_t properties = {0};
    properties._flags = AMQP_BASIC_DELIVERY_MODE_FLAG;
    properties.delivery_mode = durable ? 2 : 1;
    unsigned char *at = (unsigned char *)outgoing + filled + 7;
    memset(at, 0, 4);
    at[1] = AMQP_BASIC_CLASS;
    for (int i = 0; i < 8; i++) at[4 + i] = (unsigned char)((uint64_t)size >> (56 - 8 * i));
    amqp_bytes_t room = {MOST_HEAD, at + 12};
    int length = amqp_encode_properties(AMQP_BASIC_CLASS, &properties, room);
    if (length < 0) die("properties cannot be encoded");
    enclose(AMQP_FRAME_HEADER, (size_t)length + 12);

    memcpy(outgoing + filled + 7, body, size);
    enclose(AMQP_FRAME_BODY, size);
}

static void flush(amqp_connection_state_t c) {
    struct pollfd wait = {amqp_get_sockfd(c), POLLOUT, 0};
    for (size_t done = 0; done < filled;) {
        ssize_t sent = send(wait.fd, outgoing + done, filled - done, MSG_NOSIGNAL);
        if (sent >= 0) done += (size_t)sent;
        else if (errno == EAGAIN || errno == EWOULDBLOCK) poll(&wait, 1, -1);
        else if (errno != EINTR) die("send");
    }
    filled = 0;
}

// ── The producer ──────────────────────────────────────────────────────────────────────────────

static void publish(amqp_connection_state_t c) {
    amqp_basic_properties_t properties = {0};
    properties._flags = AMQP_BASIC_DELIVERY_MODE_FLAG;
    properties.delivery_mode = durable ? 2 : 1;
    amqp_bytes_t bytes = {size, body};
    if (amqp_basic_publish(c, 1, amqp_empty_bytes, queue, 0, 0, &properties, bytes)) die("publish");
}

// Read one confirm; return how many messages are confirmed.
static long confirm(amqp_connection_state_t c) {
    amqp_frame_t frame;
    // Brokers may confirm out of order: `upto` are confirmed together, `apart` others one by one.
    static long upto, apart;
    amqp_maybe_release_buffers(c);
    if (amqp_simple_wait_frame(c, &frame)) die("confirm");
    if (frame.frame_type != AMQP_FRAME_METHOD || frame.payload.method.id != AMQP_BASIC_ACK_METHOD)
        die("a confirm was expected");
    amqp_basic_ack_t *ack = frame.payload.method.decoded;
    long tag = (long)ack->delivery_tag;
    if (ack->multiple) upto = tag, apart = 0;
    else if (tag == upto + 1) upto++;
    else apart++;
    return upto + apart;
}

static void *produce(void *unused) {
    (void)unused;
    amqp_connection_state_t c = connected();
    if (confirmed) {
        amqp_confirm_select(c, 1);
        check(amqp_get_rpc_reply(c), "confirm.select");
    }
    long told = 0, most = burst ? BURST : 1;
    for (long sent = 0; sent < count;) {
        long next = count - sent < most ? count - sent : most;
        while (confirmed && sent + next - told > WINDOW) told = confirm(c);
        if (burst) {
            for (long i = 0; i < next; i++) put_message();
            flush(c);
        } else publish(c);
        sent += next;
    }
    while (confirmed && told < count) told = confirm(c);
    amqp_channel_close(c, 1, AMQP_REPLY_SUCCESS);
    amqp_connection_close(c, AMQP_REPLY_SUCCESS);
    amqp_destroy_connection(c);
    return NULL;
}

// ── The consumer ──────────────────────────────────────────────────────────────────────────────

static void take_frame(amqp_connection_state_t c, amqp_frame_t *frame, int type) {
    if (amqp_simple_wait_frame(c, frame)) die("consume");
    if (frame->frame_type != type) die("a frame of another type");
}

// Take a message; return its delivery tag. Its body is one frame.
static uint64_t take(amqp_connection_state_t c) {
    amqp_maybe_release_buffers(c);
    if (!burst) {
        amqp_envelope_t envelope;
        check(amqp_consume_message(c, &envelope, NULL, 0), "consume");
        if (envelope.message.body.len != size) die("a body of another size");
        uint64_t tag = envelope.delivery_tag;
        amqp_destroy_envelope(&envelope);
        return tag;
    }
    amqp_frame_t frame;
    take_frame(c, &frame, AMQP_FRAME_METHOD);
    if (frame.payload.method.id != AMQP_BASIC_DELIVER_METHOD) die("a delivery was expected");
    uint64_t tag = ((amqp_basic_deliver_t *)frame.payload.method.decoded)->delivery_tag;
    take_frame(c, &frame, AMQP_FRAME_HEADER);
    if (frame.payload.properties.body_size != size) die("a body of another size");
    take_frame(c, &frame, AMQP_FRAME_BODY);
    if (frame.payload.body_fragment.len != size) die("a body in several frames");
    return tag;
}

static void consume(amqp_connection_state_t c) {
    long every = burst ? BURST : 1;
    for (long got = 1; got <= count; got++) {
        uint64_t tag = take(c);
        if (confirmed && (got % every == 0 || got == count))
            if (amqp_basic_ack(c, 1, tag, burst)) die("ack");
    }
}

// ── The bare relay ────────────────────────────────────────────────────────────────────────────

// Bytes around a body: what librabbitmq writes for the method and the header, and what a broker
// writes in front of the body.
enum { METHOD_BYTES = 21, HEADER_BYTES = 23, DELIVERY_BYTES = 87 };

static void pass_on(int listener) {
    int from = accept(listener, NULL, NULL), to = accept(listener, NULL, NULL), one = 1;
    setsockopt(to, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    relay(from, to, METHOD_BYTES + HEADER_BYTES + size + ENVELOPE, DELIVERY_BYTES + size + ENVELOPE, 0);
    _exit(0);
}

static int joined(const struct sockaddr_in *place) {
    int s = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (connect(s, (const struct sockaddr *)place, sizeof *place)) die("no relay");
    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return s;
}

// Start a relay; set the connections that take messages and that deliver them.
static void start_relay(int *from, int *to) {
    struct sockaddr_in place = {.sin_family = AF_INET};
    socklen_t length = sizeof place;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&place, length) || listen(listener, 2)) die("listen");
    getsockname(listener, (struct sockaddr *)&place, &length);
    if (fork() == 0) pass_on(listener);
    *from = joined(&place);
    *to = joined(&place);
    fcntl(*to, F_SETFL, O_NONBLOCK);
}

// Send a message as librabbitmq does, in three writes, and read one.
static void pass(int from, int to) {
    size_t left = DELIVERY_BYTES + size + ENVELOPE;
    send(from, outgoing, METHOD_BYTES, MSG_NOSIGNAL | MSG_MORE);
    send(from, outgoing, HEADER_BYTES, MSG_NOSIGNAL | MSG_MORE);
    send(from, outgoing, size + ENVELOPE, MSG_NOSIGNAL);
    struct pollfd wait = {to, POLLIN, 0};
    while (left > 0) {
        ssize_t part = recv(to, outgoing, left, 0);
        if (part > 0) left -= (size_t)part;
        else if (part == 0) die("the relay has ended");
        else poll(&wait, 1, -1);
    }
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void tell(double *samples, double used, double of_relay) {
    qsort(samples, (size_t)count, sizeof *samples, ascending);
    double median = samples[count / 2], tail = samples[count * 99 / 100];
    printf("{\"median\": %.1f, \"p99\": %.1f, \"processor\": %.4f, \"relay\": %.4f}\n", median, tail,
           used, of_relay);
}

int main(int argc, char **argv) {
    if (argc != 7) die("HOST PORT COUNT SIZE MODE CALLS");
    host = argv[1];
    port = atoi(argv[2]);
    count = atol(argv[3]);
    size = (size_t)atol(argv[4]);
    durable = !strcmp(argv[5], "durable");
    confirmed = durable || !strcmp(argv[5], "confirmed");
    latency = !strcmp(argv[5], "latency");
    burst = !strcmp(argv[6], "burst");
    body = calloc(1, size);
    outgoing = malloc(BURST * (size + 2 * MOST_HEAD));
    queue = amqp_cstring_bytes("load");
    double *samples = calloc((size_t)count, sizeof *samples);
    if (!strcmp(argv[5], "bare")) {
        int from, to;
        start_relay(&from, &to);
        double used = processor();
        for (long got = 0; got < count; got++) {
            double at = now();
            pass(from, to);
            samples[got] = (now() - at) * 1e6;
        }
        used = processor() - used;
        struct rusage spent;
        close(from);
        close(to);
        wait(NULL);
        getrusage(RUSAGE_CHILDREN, &spent);
        double of_relay = (double)(spent.ru_utime.tv_sec + spent.ru_stime.tv_sec) +
                          (double)(spent.ru_utime.tv_usec + spent.ru_stime.tv_usec) / 1e6;
        tell(samples, used, of_relay);
        return 0;
    }

    amqp_connection_state_t c = connected();
    amqp_queue_delete(c, 1, queue, 0, 0);
    amqp_get_rpc_reply(c);
    amqp_queue_declare(c, 1, queue, 0, durable, 0, 0, amqp_empty_table);
    check(amqp_get_rpc_reply(c), "queue.declare");
    if (confirmed) amqp_basic_qos(c, 1, 0, WINDOW, 0);
    amqp_basic_consume(c, 1, queue, amqp_empty_bytes, 0, !confirmed, 0, amqp_empty_table);
    check(amqp_get_rpc_reply(c), "basic.consume");

    double used = processor(), begun = now();
    if (latency) {
        amqp_connection_state_t sender = connected();
        used = processor();
        for (long got = 0; got < count; got++) {
            double at = now();
            if (burst) put_message(), flush(sender);
            else publish(sender);
            take(c);
            samples[got] = (now() - at) * 1e6;
        }
        tell(samples, processor() - used, 0);
    } else {
        pthread_t producer;
        if (pthread_create(&producer, NULL, produce, NULL)) die("thread");
        consume(c);
        double seconds = now() - begun;
        pthread_join(producer, NULL);
        used = processor() - used;
        printf("{\"seconds\": %.4f, \"processor\": %.4f}\n", seconds, used);
    }
    return 0;
}
