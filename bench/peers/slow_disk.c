/* A disk that syncs in SLOW_DISK_US microseconds, for LD_PRELOAD: each call that waits for the disk
 * takes that much longer. Without the variable nothing changes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static void wait_for_disk(void)
{
    static long microseconds = -1;
    int kept = errno;
    if (microseconds < 0) {
        const char *text = getenv("SLOW_DISK_US");
        microseconds = text ? atol(text) : 0;
    }
    if (microseconds > 0) {
        struct timespec pause = {microseconds / 1000000, microseconds % 1000000 * 1000};
        nanosleep(&pause, NULL);
    }
    errno = kept;
}

static void *next_of(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

static int is_synced(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && (flags & O_DSYNC);
}

#define SYNC(name)                                                                                 \
    int name(int fd)                                                                               \
    {                                                                                              \
        static int (*real)(int);                                                                   \
        if (!real)                                                                                 \
            real = next_of(#name);                                                                 \
        wait_for_disk();                                                                           \
        return real(fd);                                                                           \
    }

SYNC(fsync)
SYNC(fdatasync)

#define WRITE(name)                                                                                \
    ssize_t name(int fd, const void *data, size_t size, off64_t at)                                \
    {                                                                                              \
        static ssize_t (*real)(int, const void *, size_t, off64_t);                                \
        if (!real)                                                                                 \
            real = next_of(#name);                                                                 \
        if (is_synced(fd))                                                                         \
            wait_for_disk();                                                                       \
        return real(fd, data, size, at);                                                           \
    }

WRITE(pwrite)
WRITE(pwrite64)

#define WRITEV(name)                                                                               \
    ssize_t name(int fd, const struct iovec *parts, int count, off64_t at, int flags)              \
    {                                                                                              \
        static ssize_t (*real)(int, const struct iovec *, int, off64_t, int);                      \
        if (!real)                                                                                 \
            real = next_of(#name);                                                                 \
        if (flags & RWF_DSYNC)                                                                     \
            wait_for_disk();                                                                       \
        return real(fd, parts, count, at, flags);                                                  \
    }

WRITEV(pwritev2)
WRITEV(pwritev64v2)
