/* Counts a process's calls that change files in a folder, and has one of them fail or be its last.
 *
 * Loaded before libc. `fault_arm` begins the count, in memory that a parent shares. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static volatile long *count;
static long at;
static int kind; /* an error's number, or 0 for a kill */
static int lasting; /* whether all later calls fail too, as where a disk is full */
static char folder[4096];

void fault_arm(long *shared, long when, int what, int on, const char *where) {
    strncpy(folder, where, sizeof folder - 1);
    at = when; kind = what; lasting = on; count = shared;
}

static int boundary(const char *path, int frees) {
    if (!count || strncmp(path, folder, strlen(folder))) return 0;
    long here = ++*count;
    if (!at || here < at || (here > at && !lasting)) return 0;
    if (!kind) { kill(getpid(), SIGKILL); pause(); }
    if (frees && kind == ENOSPC) return 0;
    errno = kind;
    return 1;
}

static int by_name(int dir, const char *name, int frees) {
    char path[8300], base[4096] = "";
    if (!count) return 0;
    if (name[0] == '/') return boundary(name, frees);
    if (dir == AT_FDCWD) { if (!getcwd(base, sizeof base)) return 0; }
    else {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
        ssize_t n = readlink(link, base, sizeof base - 1);
        if (n < 0) return 0;
        base[n] = 0;
    }
    snprintf(path, sizeof path, "%s/%s", base, name);
    return boundary(path, frees);
}

static int by_number(int file) {
    char link[64], path[4096];
    if (!count) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = 0;
    return boundary(path, 0);
}

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define NUMBERED(type, name, parameters, arguments) \
    type name parameters { REAL(name); return by_number(f) ? -1 : real arguments; }

NUMBERED(ssize_t, write, (int f, const void *b, size_t n), (f, b, n))
NUMBERED(ssize_t, pwrite, (int f, const void *b, size_t n, off_t o), (f, b, n, o))
NUMBERED(ssize_t, pwrite64, (int f, const void *b, size_t n, off64_t o), (f, b, n, o))
NUMBERED(int, fsync, (int f), (f))
NUMBERED(int, fdatasync, (int f), (f))
NUMBERED(int, ftruncate, (int f, off_t n), (f, n))
NUMBERED(int, ftruncate64, (int f, off64_t n), (f, n))

int rename(const char *a, const char *b) {
    REAL(rename); return by_name(AT_FDCWD, b, 0) ? -1 : real(a, b);
}
int renameat(int d, const char *a, int e, const char *b) {
    REAL(renameat); return by_name(e, b, 0) ? -1 : real(d, a, e, b);
}
int link(const char *a, const char *b) {
    REAL(link); return by_name(AT_FDCWD, b, 0) ? -1 : real(a, b);
}
int linkat(int d, const char *a, int e, const char *b, int flags) {
    REAL(linkat); return by_name(e, b, 0) ? -1 : real(d, a, e, b, flags);
}
int unlink(const char *a) { REAL(unlink); return by_name(AT_FDCWD, a, 1) ? -1 : real(a); }
int unlinkat(int d, const char *a, int flags) {
    REAL(unlinkat); return by_name(d, a, 1) ? -1 : real(d, a, flags);
}
int rmdir(const char *a) { REAL(rmdir); return by_name(AT_FDCWD, a, 1) ? -1 : real(a); }
int mkdir(const char *a, mode_t m) {
    REAL(mkdir); return by_name(AT_FDCWD, a, 0) ? -1 : real(a, m);
}
