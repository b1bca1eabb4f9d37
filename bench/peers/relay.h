// A relay without a protocol: the least that a broker does between two connections.

#include <errno.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RELAY_ROOM = 1 << 20 };

static int relay_write(int to, const char *room, size_t left) {
    while (left > 0) {
        ssize_t part = send(to, room, left < RELAY_ROOM ? left : RELAY_ROOM, MSG_NOSIGNAL);
        if (part < 0 && errno != EINTR) return -1;
        if (part > 0) left -= (size_t)part;
    }
    return 0;
}

// Read messages of `in` bytes from the first connection, until it ends. For those that one read
// completes, write `out` bytes each to the second connection and, together, `answer` bytes to the
// first. With an answer, read what the second connection sends, too.
static void relay(int from, int to, size_t in, size_t out, size_t answer) {
    static char room[RELAY_ROOM];
    int events = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = from};
    epoll_ctl(events, EPOLL_CTL_ADD, from, &event);
    event.data.fd = to;
    if (answer) epoll_ctl(events, EPOLL_CTL_ADD, to, &event);
    for (size_t got = 0;;) {
        struct epoll_event ready[2];
        int many = epoll_wait(events, ready, 2, -1);
        for (int i = 0; i < many; i++) {
            ssize_t part = read(ready[i].data.fd, room, sizeof room);
            if (part <= 0) goto end;
            if (ready[i].data.fd == to) continue;
            got += (size_t)part;
            if (got < in) continue;
            if (relay_write(to, room, got / in * out)) goto end;
            if (answer && relay_write(from, room, answer)) goto end;
            got %= in;
        }
    }
end:
    close(events);
}
