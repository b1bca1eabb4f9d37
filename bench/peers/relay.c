// The relay without a protocol as a server on a free port of 127.0.0.1, for one pair of connections
// after another. The first connection takes messages. Its first bytes are three sizes, 4 bytes
// each: of a message that is read, of one that is written, and of an answer.
//
// `bench/peers/load_raw.c` is its client.

#include "relay.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>

static int next(int listener) {
    int made = accept(listener, NULL, NULL), one = 1;
    setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return made;
}

int main(void) {
    struct sockaddr_in place = {.sin_family = AF_INET};
    socklen_t length = sizeof place;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&place, length) || listen(listener, 2)) return 1;
    getsockname(listener, (struct sockaddr *)&place, &length);
    printf("listening tcp://127.0.0.1:%d\nready\n", ntohs(place.sin_port));
    fflush(stdout);
    for (;;) {
        uint32_t sizes[3];
        int to = next(listener);
        if (recv(to, sizes, sizeof sizes, MSG_WAITALL) == sizeof sizes) {
            int from = next(listener);
            relay(from, to, sizes[0], sizes[1], sizes[2]);
            close(from);
        }
        close(to);
    }
}
