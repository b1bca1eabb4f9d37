// A load for servers whose bytes need no library: NATS, and the relay of relay.c. One thread serves
// one connection that sends numbered messages and one that takes them, as `python -m bench.load`
// does for AMQP 1.0.
//
//   load_raw PORT COUNT WARM_UP SIZE IN_FLIGHT MODE [RATE]
//
// MODE is `relay`, `relay-answered` (an answer for what arrives, and one from the consumer), `nats`
// (at most once), `jetstream-memory` or `jetstream-file` (the stream confirms each message, the
// consumer acknowledges the last of those that it has read). With `relay`, SIZE is that of a frame.
//
// At most IN_FLIGHT messages are sent and not confirmed; without confirms, sent and not received. Of
// one in flight both is awaited, and the next is sent 50 µs later, which do not count. The clock
// runs from the last message of the warm-up to the last of all. It prints JSON: seconds, and this process's processor time in seconds. Messages that are
// lost, repeated or out of order are an error.
//
// With RATE, messages are sent at even intervals, so many in a second, whether earlier ones have
// arrived or not. The JSON then has latency_us: percentiles of the times from when a message was
// due until it arrived. Between them the process sleeps.

#define _GNU_SOURCE

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

// Seconds between two messages of which only one is in flight.
static const double REST = 50e-6;

// Messages in a write, bytes of a confirm of the relay, milliseconds without progress.
enum { BURST = 256, ANSWER = 35, PATIENCE = 10000, ROOM = 1 << 20 };

typedef struct {
    int socket;
    char in[ROOM], *out;
    size_t filled, unwritten, start;
} Pipe;

static Pipe producer, consumer;
static int nats, jetstream, answered;
static long total, sent, confirmed, received, warm_up;
static size_t size;
static double began, rested, rate, started, *latencies;
static char reply[256];

static double clock_of(clockid_t which) {
    struct timespec t;
    clock_gettime(which, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void die(const char *what) {
    fprintf(stderr, "load_raw: %s (sent %ld, confirmed %ld, received %ld of %ld)\n", what, sent,
            confirmed, received, total);
    exit(1);
}

static void put(Pipe *p, const void *bytes, size_t length) {
    if (p->start + p->unwritten + length > 2 * ROOM) {
        memmove(p->out, p->out + p->start, p->unwritten);
        p->start = 0;
        if (p->unwritten + length > 2 * ROOM) die("the server does not read");
    }
    memcpy(p->out + p->start + p->unwritten, bytes, length);
    p->unwritten += length;
}

static void put_text(Pipe *p, const char *text) { put(p, text, strlen(text)); }

static void write_some(Pipe *p) {
    if (!p->unwritten) return;
    ssize_t part = send(p->socket, p->out + p->start, p->unwritten, MSG_NOSIGNAL);
    if (part < 0 && errno != EAGAIN && errno != EINTR) die("send");
    if (part > 0) p->start += (size_t)part, p->unwritten -= (size_t)part;
    if (!p->unwritten) p->start = 0;
}

static void connected(Pipe *p, int port) {
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int one = 1;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    p->socket = socket(AF_INET, SOCK_STREAM, 0);
    p->out = malloc(2 * ROOM);
    if (connect(p->socket, (struct sockaddr *)&place, sizeof place)) die("no connection");
    setsockopt(p->socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(p->socket, F_SETFL, O_NONBLOCK);
}

static void arrived(const char *body, size_t length) {
    uint64_t number;
    memcpy(&number, body, sizeof number);
    if (length != size || (nats && number != (uint64_t)received)) die("another message");
    if (rate && received >= warm_up)
        latencies[received - warm_up] =
            1e6 * (clock_of(CLOCK_MONOTONIC) - started - (double)received / rate);
    received++;
    if (received == warm_up) began = clock_of(CLOCK_MONOTONIC);
}

// ── The protocol of NATS ──────────────────────────────────────────────────────────────────────

static long pongs, answers, created;

// Take the messages and commands that are complete; return how many bytes they have.
static size_t take_nats(Pipe *p) {
    size_t at = 0;
    for (;;) {
        char *line = p->in + at, *end = memchr(line, '\n', p->filled - at);
        if (!end) return at;
        size_t next = (size_t)(end - p->in) + 1;
        if (!strncmp(line, "MSG ", 4)) {
            char *digits = end - 1;
            while (digits[-1] != ' ') digits--;
            size_t length = strtoul(digits, NULL, 10);
            if (p->filled < next + length + 2) return at;
            char *body = p->in + next;
            if (line[4] == 'a') {  // an answer of JetStream, to `answer`
                answers++;
                // At first there is no stream to delete.
                if (answers > 1 && memmem(body, length, "\"error\"", 7)) {
                    fprintf(stderr, "%.*s\n", (int)length, body);
                    die("JetStream refuses");
                }
                if (created) confirmed++;
            } else {
                arrived(body, length);
                // MSG SUBJECT SID REPLY SIZE
                char *from = strchr(strchr(line + 4, ' ') + 1, ' ') + 1;
                if (jetstream) snprintf(reply, sizeof reply, "%.*s", (int)(digits - 1 - from), from);
            }
            next += length + 2;
        } else if (!strncmp(line, "PING", 4)) put_text(p, "PONG\r\n");
        else if (!strncmp(line, "PONG", 4)) pongs++;
        else if (!strncmp(line, "-ERR", 4)) die(line);
        at = next;
    }
}

static void read_some(Pipe *p);

// Write everything, and wait until `what` has reached `wanted`.
static void await(Pipe *p, const long *what, long wanted) {
    while (*what < wanted) {
        struct pollfd wait = {p->socket, POLLIN | (p->unwritten ? POLLOUT : 0), 0};
        write_some(p);
        if (!poll(&wait, 1, PATIENCE)) die("the server does not answer");
        if (wait.revents & ~POLLOUT) read_some(p);
    }
}

static void ask(const char *subject, const char *json) {
    char line[1024];
    snprintf(line, sizeof line, "PUB $JS.API.%s answer %zu\r\n%s\r\n", subject, strlen(json), json);
    put_text(&producer, line);
    await(&producer, &answers, answers + 1);
}

static void greet(Pipe *p, const char *subscription) {
    put_text(p, "CONNECT {\"verbose\":false,\"pedantic\":false}\r\n");
    put_text(p, subscription);
    put_text(p, "PING\r\n");
    long before = pongs;
    await(p, &pongs, before + 1);
}

static void begin_nats(const char *storage) {
    greet(&producer, jetstream ? "SUB answer 1\r\n" : "");
    // Before the consumer subscribes, or it would get what an earlier run has left.
    if (jetstream) ask("STREAM.DELETE.bench", "");
    greet(&consumer, jetstream ? "SUB deliver 1\r\n" : "SUB bench 1\r\n");
    if (!jetstream) return;
    char json[512];
    snprintf(json, sizeof json,
             "{\"name\":\"bench\",\"subjects\":[\"bench\"],\"retention\":\"interest\","
             "\"storage\":\"%s\",\"num_replicas\":1}",
             storage);
    ask("STREAM.CREATE.bench", json);
    ask("CONSUMER.DURABLE.CREATE.bench.bench",
        "{\"stream_name\":\"bench\",\"config\":{\"durable_name\":\"bench\",\"deliver_subject\":"
        "\"deliver\",\"deliver_policy\":\"all\",\"ack_policy\":\"all\",\"ack_wait\":30000000000,"
        "\"max_ack_pending\":1000}}");
    created = 1;
}

// ── Both ──────────────────────────────────────────────────────────────────────────────────────

static size_t take_relayed(Pipe *p) {
    if (p == &producer) {
        // One answer stands for everything that arrived before it.
        confirmed = sent;
        return p->filled;
    }
    size_t at = 0;
    for (; p->filled - at >= size; at += size) arrived(p->in + at, size);
    return at;
}

static void read_some(Pipe *p) {
    ssize_t part = recv(p->socket, p->in + p->filled, ROOM - p->filled, 0);
    if (part < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (part <= 0) die("the server has closed the connection");
    p->filled += (size_t)part;
    long before = received;
    size_t taken = nats ? take_nats(p) : take_relayed(p);
    memmove(p->in, p->in + taken, p->filled - taken);
    p->filled -= taken;
    if (received == before) return;
    if (jetstream) {
        put_text(p, "PUB ");
        put_text(p, reply);
        put_text(p, " 4\r\n+ACK\r\n");
    } else if (answered) put(p, p->in, ANSWER);
}

// Spin for as long as a client of AMQP 1.0 works on a message: a server that has rested needs more
// processor time for the next message.
static void rest(void) {
    double since = clock_of(CLOCK_MONOTONIC), now = since;
    while (now < since + REST) now = clock_of(CLOCK_MONOTONIC);
    if (received >= warm_up) rested += now - since;
}

static void send_burst(long in_flight) {
    static char head[64], body[65536];
    if (!head[0])
        snprintf(head, sizeof head, "PUB bench %s%zu\r\n", jetstream ? "answer " : "", size);
    size_t length = strlen(head);
    long due = total;
    if (rate) {
        double now = clock_of(CLOCK_MONOTONIC);
        if (!started) started = now;
        due = 1 + (long)((now - started) * rate);
        if (due > total) due = total;
    }
    for (int i = 0; i < BURST && sent < due; i++) {
        long done = jetstream || answered ? confirmed : received;
        if (in_flight == 1 && received < done) done = received;
        if (sent - done >= in_flight) return;
        if (in_flight == 1) rest();
        uint64_t number = (uint64_t)sent++;
        memcpy(body, &number, sizeof number);
        if (nats) put(&producer, head, length);
        put(&producer, body, size);
        if (nats) put(&producer, "\r\n", 2);
    }
}

// Until something arrives or the next message is due.
static int wait_for(struct pollfd *ready) {
    double seconds = PATIENCE / 1e3;
    if (rate && sent < total) {
        double rest = started + (double)sent / rate - clock_of(CLOCK_MONOTONIC);
        if (rest < seconds) seconds = rest > 0 ? rest : 0;
    }
    struct timespec limit = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
    return ppoll(ready, 2, &limit, NULL);
}

static int compare(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

int main(int argc, char **argv) {
    if (argc != 7 && argc != 8) die("PORT COUNT WARM_UP SIZE IN_FLIGHT MODE [RATE]");
    if (argc == 8) rate = atof(argv[7]);
    // Sleep no longer than until a message is due.
    prctl(PR_SET_TIMERSLACK, 1UL);
    const char *mode = argv[6];
    warm_up = atol(argv[3]);
    total = atol(argv[2]) + warm_up;
    latencies = calloc((size_t)(total - warm_up), sizeof *latencies);
    size = (size_t)atol(argv[4]);
    long in_flight = atol(argv[5]);
    nats = strncmp(mode, "relay", 5) != 0;
    jetstream = !strncmp(mode, "jetstream", 9);
    answered = !strcmp(mode, "relay-answered");
    if (size < 8 || size > 65536 || warm_up < 1) die("a size or a warm-up that is impossible");
    // The relay expects the consumer first.
    connected(&consumer, atoi(argv[1]));
    if (!nats) {
        uint32_t sizes[3] = {(uint32_t)size, (uint32_t)size, answered ? ANSWER : 0};
        put(&consumer, sizes, sizeof sizes);
        write_some(&consumer);
    }
    connected(&producer, atoi(argv[1]));
    if (nats) begin_nats(!strcmp(mode, "jetstream-file") ? "file" : "memory");
    double used = clock_of(CLOCK_PROCESS_CPUTIME_ID), last = clock_of(CLOCK_MONOTONIC);
    while (received < total || (jetstream && confirmed < total)) {
        if (producer.unwritten < ROOM / 2) send_burst(in_flight);
        write_some(&producer);
        write_some(&consumer);
        struct pollfd ready[2] = {
            {producer.socket, POLLIN | (producer.unwritten ? POLLOUT : 0), 0},
            {consumer.socket, POLLIN | (consumer.unwritten ? POLLOUT : 0), 0},
        };
        int some = wait_for(ready);
        double now = clock_of(CLOCK_MONOTONIC);
        if (some) last = now;
        if (now - last > PATIENCE / 1e3) die("nothing happens");
        if (ready[0].revents & ~POLLOUT) read_some(&producer);
        if (ready[1].revents & ~POLLOUT) read_some(&consumer);
    }
    printf("{\"seconds\": %.6f, \"processor\": %.4f", clock_of(CLOCK_MONOTONIC) - began - rested,
           clock_of(CLOCK_PROCESS_CPUTIME_ID) - used);
    if (rate) {
        long count = total - warm_up;
        qsort(latencies, (size_t)count, sizeof *latencies, compare);
        printf(", \"latency_us\": {\"p50\": %.2f, \"p99\": %.2f, \"p99.9\": %.2f}",
               latencies[count / 2], latencies[count * 99 / 100], latencies[count * 999 / 1000]);
    }
    puts("}");
    return 0;
}
