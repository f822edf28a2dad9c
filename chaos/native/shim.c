/* Loaded before the C library (LD_PRELOAD): a clock that is wrong, and a system that starts no processes.
 *
 * CHAOS_CLOCK names a file with the seconds by which the time of day is off; CHAOS_FORK one with the number of the
 * error that every new process fails with. A file that is not there, or empty, changes nothing.
 * Clocks that only count are left alone, as a real jump leaves them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <fcntl.h>

static long number_in(const char *variable) {
    const char *path = getenv(variable);
    char text[32] = {0};
    if (path == NULL) return 0;
    int saved = errno, file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        if (read(file, text, sizeof text - 1) < 0) text[0] = 0;
        close(file);
    }
    errno = saved;
    return strtol(text, NULL, 10);
}

static int is_of_day(clockid_t clock) { return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE; }

int clock_gettime(clockid_t clock, struct timespec *now) {
    int status = (int)syscall(SYS_clock_gettime, clock, now);
    if (status == 0 && is_of_day(clock)) now->tv_sec += number_in("CHAOS_CLOCK");
    return status;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact) != 0) return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    if (at != NULL) *at = now.tv_sec;
    return now.tv_sec;
}

static int is_refused(void) {
    long number = number_in("CHAOS_FORK");
    if (number == 0) return 0;
    errno = (int)number;
    return 1;
}

pid_t fork(void) {
    static pid_t (*real)(void);
    if (is_refused()) return -1;
    if (real == NULL) real = (pid_t(*)(void))dlsym(RTLD_NEXT, "fork");
    return real();
}

/* A real vfork cannot be wrapped: its child would return through our frame. To callers the two mean the same. */
pid_t vfork(void) { return fork(); }

int posix_spawn(pid_t *restrict pid, const char *restrict path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *restrict attributes, char *const *restrict words, char *const *restrict env) {
    static int (*real)(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *,
                       char *const *, char *const *);
    if (is_refused()) return errno;
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "posix_spawn");
    return real(pid, path, actions, attributes, words, env);
}
