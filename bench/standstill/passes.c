/* Passes of an event loop, for LD_PRELOAD: the processor time of the main thread from the return of
 * epoll_wait to its next call. The file that STANDSTILL_PASSES names is mapped: three counters of
 * eight bytes, which a reader may set to zero: nanoseconds of the longest pass, the number of passes,
 * the number of those that took 20 ms or more. Without the variable nothing is measured. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define LONG_PASS 20000000ULL

static volatile uint64_t *counters;
static uint64_t begun;

__attribute__((constructor)) static void map_counters(void)
{
    const char *path = getenv("STANDSTILL_PASSES");
    int file = path ? open(path, O_RDWR) : -1;
    if (file < 0)
        return;
    void *found = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (found != MAP_FAILED)
        counters = found;
}

static uint64_t processor_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

static int is_measured(void)
{
    return counters && gettid() == getpid();
}

static void end_pass(void)
{
    if (!begun)
        return;
    uint64_t took = processor_time() - begun;
    if (took > counters[0])
        counters[0] = took;
    counters[1]++;
    if (took >= LONG_PASS)
        counters[2]++;
}

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout)
{
    static int (*real)(int, struct epoll_event *, int, int);
    if (!real)
        real = dlsym(RTLD_NEXT, "epoll_wait");
    if (!is_measured())
        return real(fd, events, most, timeout);
    end_pass();
    int ready = real(fd, events, most, timeout);
    begun = processor_time();
    return ready;
}

int epoll_pwait(int fd, struct epoll_event *events, int most, int timeout, const sigset_t *mask)
{
    static int (*real)(int, struct epoll_event *, int, int, const sigset_t *);
    if (!real)
        real = dlsym(RTLD_NEXT, "epoll_pwait");
    if (!is_measured())
        return real(fd, events, most, timeout, mask);
    end_pass();
    int ready = real(fd, events, most, timeout, mask);
    begun = processor_time();
    return ready;
}
