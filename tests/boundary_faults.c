/* Counts a process's calls that change files in a folder, and has one of them fail or be its last.
 *
 * Loaded before libc. `fault_arm` begins the count, in memory that a parent shares. A loss of power
 * is a kill after which what was written and not synchronised is as it was: all of it, or some of
 * it, since a disk writes in any order. Names are taken to be written at once. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/types.h>
#include <unistd.h>

static volatile long *count;
static long at;
static int kind; /* an error's number, 0 for a kill, POWER or TORN for a loss of power */
static int lasting; /* whether all later calls fail too, as where a disk is full */
static char folder[4096];

enum { POWER = -1, TORN = -2 };
#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

struct tracked { dev_t device; ino_t inode; int file; };
static struct tracked files[512]; /* never closed: that would let go of SQLite's locks */
static size_t known;
struct old { int file; off_t size, from; size_t length; char *bytes; };
static struct old *olds; /* what writes that are not synchronised have overwritten, oldest first */
static size_t held, room;

/* Returns a number for the file behind f that can be written to, or -1. */
static int tracked(int f, struct stat *there) {
    char link[64];
    if (kind >= 0 || fstat(f, there) || !S_ISREG(there->st_mode)) return -1;
    for (size_t n = 0; n < known; n++)
        if (files[n].inode == there->st_ino && files[n].device == there->st_dev) return files[n].file;
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    snprintf(link, sizeof link, "/proc/self/fd/%d", f);
    int file = real(link, O_RDWR | O_CLOEXEC);
    if (known == 512) abort();
    files[known++] = (struct tracked){there->st_dev, there->st_ino, file};
    return file;
}

/* Keeps what a write at a place is about to overwrite; place -1 is the end, length -1 the rest. */
static void keep(int f, off_t from, ssize_t length) {
    struct stat there;
    int file = tracked(f, &there);
    if (file < 0) return;
    if (from < 0) from = there.st_size;
    if (length < 0) length = there.st_size > from ? there.st_size - from : 0;
    if (held == room) olds = realloc(olds, sizeof *olds * (room = room ? 2 * room : 64));
    char *bytes = malloc(length + 1);
    ssize_t got = pread(file, bytes, length, from);
    olds[held++] = (struct old){file, there.st_size, from, got < 0 ? 0 : got, bytes};
}

/* Forgets what was overwritten in a file that is synchronised now. */
static void synchronised(int f) {
    struct stat there;
    int file = tracked(f, &there);
    size_t left = 0;
    for (size_t n = 0; n < held; n++) {
        if (olds[n].file == file) free(olds[n].bytes);
        else olds[left++] = olds[n];
    }
    held = left;
}

static void lose_power(void) {
    __typeof__(&pwrite) put = (__typeof__(&pwrite))dlsym(RTLD_NEXT, "pwrite");
    __typeof__(&ftruncate) cut = (__typeof__(&ftruncate))dlsym(RTLD_NEXT, "ftruncate");
    srand(at);
    for (size_t n = held; n-- > 0;) {
        if (kind == TORN && rand() % 2) continue;
        if (put(olds[n].file, olds[n].bytes, olds[n].length, olds[n].from) < 0) abort();
        if (kind == POWER && cut(olds[n].file, olds[n].size)) abort();
    }
}

/* Loses power now, where a command has ended. */
void fault_end(void) {
    if (count && kind < 0 && at > *count) lose_power();
}

void fault_arm(long *shared, long when, int what, int on, const char *where) {
    strncpy(folder, where, sizeof folder - 1);
    at = when; kind = what; lasting = on; count = shared;
}

static int boundary(const char *path, int frees) {
    if (!count || strncmp(path, folder, strlen(folder))) return 0;
    long here = ++*count;
    if (!at || here < at || (here > at && !lasting)) return 0;
    if (kind < 0) lose_power();
    if (kind <= 0) { kill(getpid(), SIGKILL); pause(); }
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

#define NUMBERED(type, name, parameters, arguments, before, after) \
    type name parameters { \
        REAL(name); \
        if (by_number(f)) return -1; \
        if (count) { before; } \
        type done = real arguments; \
        if (count && done >= 0) { after; } \
        return done; \
    }

static off_t place(int f) {
    return fcntl(f, F_GETFL) & O_APPEND ? -1 : lseek(f, 0, SEEK_CUR);
}

static ssize_t total(const struct iovec *v, int n) {
    ssize_t sum = 0;
    while (n-- > 0) sum += v[n].iov_len;
    return sum;
}

NUMBERED(ssize_t, write, (int f, const void *b, size_t n), (f, b, n), keep(f, place(f), n), )
NUMBERED(ssize_t, pwrite, (int f, const void *b, size_t n, off_t o), (f, b, n, o), keep(f, o, n), )
NUMBERED(ssize_t, pwrite64, (int f, const void *b, size_t n, off64_t o), (f, b, n, o), keep(f, o, n), )
NUMBERED(ssize_t, writev, (int f, const struct iovec *v, int n), (f, v, n), keep(f, place(f), total(v, n)), )
NUMBERED(ssize_t, pwritev, (int f, const struct iovec *v, int n, off_t o), (f, v, n, o), keep(f, o, total(v, n)), )
NUMBERED(ssize_t, sendfile, (int f, int g, off_t *o, size_t n), (f, g, o, n), keep(f, place(f), n), )
NUMBERED(ssize_t, sendfile64, (int f, int g, off64_t *o, size_t n), (f, g, o, n), keep(f, place(f), n), )
NUMBERED(int, fsync, (int f), (f), , synchronised(f))
NUMBERED(int, fdatasync, (int f), (f), , synchronised(f))
NUMBERED(int, ftruncate, (int f, off_t n), (f, n), keep(f, n, -1), )
NUMBERED(int, ftruncate64, (int f, off64_t n), (f, n), keep(f, n, -1), )
NUMBERED(int, fchmod, (int f, mode_t m), (f, m), , )

ssize_t copy_file_range(int g, off64_t *p, int f, off64_t *o, size_t n, unsigned flags) {
    REAL(copy_file_range);
    if (by_number(f)) return -1;
    if (count) keep(f, o ? *o : place(f), n);
    return real(g, p, f, o, n, flags);
}

int posix_fallocate(int f, off_t o, off_t n) {
    REAL(posix_fallocate); return by_number(f) ? errno : real(f, o, n);
}

/* An opening that makes a file or empties one. */
#define OPENED(name) \
    int name(const char *path, int flags, ...) { \
        int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name); \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        int makes = flags & O_TRUNC || (flags & O_CREAT && access(path, F_OK)); \
        return makes && by_name(AT_FDCWD, path, 0) ? -1 : real(path, flags, mode); \
    }
OPENED(open)
OPENED(open64)

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
