/* Shifts the time of day of a process that is started with this library in LD_PRELOAD, and no other
   clock. The file that FERRYMQ_TEST_CLOCK names has the shift: nanoseconds, 8 bytes, as the machine
   stores integers. It may change at any time. libfaketime changes waits for conditions too, and an
   interpreter with threads stands still with it. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static const volatile int64_t *shift;
static int (*real)(clockid_t, struct timespec *);

static int64_t read_shift(void) {
    if (shift == NULL) {
        const char *path = getenv("FERRYMQ_TEST_CLOCK");
        int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0)
            return 0;
        void *found = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
        close(file);
        if (found == MAP_FAILED)
            return 0;
        shift = found;
    }
    return *shift;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    if (real == NULL)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, time);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t now = time->tv_sec * SECOND + time->tv_nsec + read_shift();
        time->tv_sec = now / SECOND;
        time->tv_nsec = now % SECOND;
    }
    return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result != NULL)
        *result = now.tv_sec;
    return now.tv_sec;
}
