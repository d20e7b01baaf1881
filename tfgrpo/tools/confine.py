"""Confines the process that calls it, for good: before any foreign code runs in it.

This file runs inside the sandbox and needs the standard library alone. On Linux it puts up, in
this order: resource limits; namespaces of its own, where those are allowed, with an empty network,
a root in which nothing is but Python's own files, and a scratch folder of bounded size; no
capability, those of the namespaces included; Landlock, which leaves Python's files to read and the
scratch folder to write to; and a seccomp filter, which lets through what `ALLOWED` and `RULES`
list and nothing else. It dies with its parent, and cannot undo that.

The filter does not lean on the newest Landlock: what an old one does not hold (truncating, device
ioctls, signals, abstract sockets) is not on the lists either. Nothing on them changes the mode,
owner, times or attributes of a file, because Landlock holds none of these.

Landlock: kernel.org/doc/html/latest/userspace-api/landlock.html. seccomp: seccomp(2).
Namespaces: user_namespaces(7), mount_namespaces(7), pivot_root(2).
"""

import ctypes
import errno
import os
import platform
import resource
import signal
import struct
import sys
import threading
from collections.abc import Callable
from typing import NamedTuple

ALLOWED = {  # system call → its number on x86_64 and on aarch64 (None: there is none)
    # memory of its own:
    "brk": (12, 214), "mmap": (9, 222), "munmap": (11, 215), "mprotect": (10, 226),
    "mremap": (25, 216), "madvise": (28, 233), "msync": (26, 227),
    # files that are open:
    "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66),
    "pread64": (17, 67), "pwrite64": (18, 68), "preadv": (295, 69), "pwritev": (296, 70),
    "preadv2": (327, 286), "pwritev2": (328, 287), "close": (3, 57), "close_range": (436, 436),
    "lseek": (8, 62), "ftruncate": (77, 46), "fallocate": (285, 47), "fsync": (74, 82),
    "fdatasync": (75, 83), "sendfile": (40, 71), "copy_file_range": (326, 285), "dup": (32, 23),
    "dup2": (33, None), "dup3": (292, 24), "pipe": (22, None), "pipe2": (293, 59),
    "umask": (95, 166),
    # names of files, which Landlock holds where they are changed:
    "stat": (4, None), "fstat": (5, 80), "lstat": (6, None), "newfstatat": (262, 79),
    "statx": (332, 291), "access": (21, None), "faccessat": (269, 48), "faccessat2": (439, 439),
    "readlink": (89, None), "readlinkat": (267, 78), "getcwd": (79, 17), "chdir": (80, 49),
    "fchdir": (81, 50), "getdents": (78, None), "getdents64": (217, 61), "mkdir": (83, None),
    "mkdirat": (258, 34), "rmdir": (84, None), "unlink": (87, None), "unlinkat": (263, 35),
    "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276), "link": (86, None),
    "linkat": (265, 37), "symlink": (88, None), "symlinkat": (266, 36),
    # waiting:
    "poll": (7, None), "ppoll": (271, 73), "select": (23, None), "pselect6": (270, 72),
    "epoll_create": (213, None), "epoll_create1": (291, 20), "epoll_ctl": (233, 21),
    "epoll_wait": (232, None), "epoll_pwait": (281, 22), "eventfd": (284, None),
    "eventfd2": (290, 19), "recvfrom": (45, 207), "futex": (202, 98), "futex_waitv": (449, 449),
    "sched_yield": (24, 124), "time": (201, None), "gettimeofday": (96, 169),
    "clock_gettime": (228, 113), "clock_getres": (229, 114), "clock_nanosleep": (230, 115),
    "nanosleep": (35, 101), "times": (100, 153), "getitimer": (36, 102), "setitimer": (38, 103),
    "alarm": (37, None), "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139), "rt_sigpending": (127, 136), "rt_sigtimedwait": (128, 137),
    "rt_sigsuspend": (130, 133), "sigaltstack": (131, 132), "pause": (34, None),
    "restart_syscall": (219, 128),
    # what it is itself:
    "exit": (60, 93), "exit_group": (231, 94), "getpid": (39, 172), "gettid": (186, 178),
    "getppid": (110, 173), "getuid": (102, 174), "geteuid": (107, 175), "getgid": (104, 176),
    "getegid": (108, 177), "getgroups": (115, 158), "getresuid": (118, 148),
    "getresgid": (120, 150), "getpgrp": (111, None), "getrusage": (98, 165),
    "getrlimit": (97, 163), "getcpu": (309, 168), "getrandom": (318, 278), "capget": (125, 90),
    "uname": (63, 160), "sysinfo": (99, 179), "set_tid_address": (218, 96),
    "set_robust_list": (273, 99), "rseq": (334, 293), "sched_get_priority_max": (146, 125),
    "sched_get_priority_min": (147, 126),
}  # fmt: skip
FCNTL = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032)
"""Copies, flags, locks and the size of a pipe. No owner, signal, lease, notice or seal."""
IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""Is it a terminal and how large; how much can be read; wait or not; close on exec or not."""
PRCTL = (15, 16)
"""The name of a thread."""
WORD = 0xFFFFFFFF
CLONE_THREAD, THREAD_FLAGS = 0x00010000, 0x017D0F00
AF_UNIX, SOCK_STREAM, SOCK_FLAGS = 1, 1, 0x80800
O_MODE, O_TRUNC = 3, 0x200
OPENINGS = (0, 1, 2, 1 | O_TRUNC, 2 | O_TRUNC)
"""Never to cut a file off by opening it to read, or for neither, which old Landlocks let pass."""
UNKNOWN = 463
"""The first number of calls that are newer than this list: an older kernel has none of them."""


class Check(NamedTuple):
    """What half of an argument of a system call must be: one of `values`, under a mask."""

    offset: int
    mask: int
    values: tuple[int, ...]


class Rule(NamedTuple):
    """A system call that passes where every check holds; its numbers are as in ALLOWED."""

    name: str
    numbers: tuple[int | None, int | None]
    checks: tuple[Check, ...]


def argument(index: int, values: tuple[int, ...], mask: int = WORD) -> Check:
    """A check of an argument that is an int: the kernel does not read its upper half."""
    return Check(16 + 8 * index, mask, values)


def null_pointer(index: int) -> tuple[Check, Check]:
    """The checks of an argument that is no address."""
    return argument(index, (0,)), Check(20 + 8 * index, WORD, (0,))


def rules() -> list[Rule]:
    """The system calls that pass with some arguments alone, for the calling process."""
    pair = argument(1, (SOCK_STREAM,), WORD & ~SOCK_FLAGS)
    thread = argument(0, (CLONE_THREAD,), WORD & ~THREAD_FLAGS | CLONE_THREAD)
    return [
        Rule("open", (2, None), (argument(1, OPENINGS, O_MODE | O_TRUNC),)),
        Rule("openat", (257, 56), (argument(2, OPENINGS, O_MODE | O_TRUNC),)),
        Rule("fcntl", (72, 25), (argument(1, FCNTL),)),
        Rule("ioctl", (16, 29), (argument(1, IOCTL),)),
        Rule("prctl", (157, 167), (argument(0, PRCTL),)),
        Rule("clone", (56, 220), (thread,)),
        Rule("tgkill", (234, 131), (argument(0, (os.getpid(),)),)),
        Rule("prlimit64", (302, 261), (argument(0, (0,)), *null_pointer(2))),
        Rule("sched_getaffinity", (204, 123), (argument(0, (0,)),)),
        # asyncio wakes itself by a pair of streams. A datagram could be sent to others, and a
        # message could carry descriptors, so neither of these:
        Rule("socketpair", (53, 199), (argument(0, (AF_UNIX,)), pair)),
        Rule("sendto", (44, 206), null_pointer(4)),
    ]


CLONE3 = (435, 435)
CAPSET = (126, 91)
PIVOT_ROOT = (155, 41)
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050000, 0x80000000
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 22, 38
NEW_MOUNTS, NEW_IPC, NEW_USER, NEW_NETWORK = 0x00020000, 0x08000000, 0x10000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 0x1000, 0x4000, 0x40000
DETACH = 2
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


class Plan(NamedTuple):
    """What a process is left with. Sizes are in bytes.

    `scratch` is the folder it may write to: `files` bytes in `entries` files and folders. `proc`
    is a descriptor of /proc, closed here, or -1. `visible` and `links` are what its root is made
    of: real paths, and symbolic links with their targets; none where somebody else made a root.
    """

    scratch: str
    memory: int
    file_size: int
    files: int
    entries: int
    proc: int
    visible: list[str]
    links: dict[str, str]


class ConfinementGaps(NamedTuple):
    """What could not be done: `missing` is a hole in the wall, `lacks` leaves it standing; and
    whether RLIMIT_NPROC bounds threads."""

    missing: list[str]
    lacks: list[str]
    threads: bool


MOST_THREADS = 256
"""Threads, and processes around them, of one session: libraries start one for each CPU."""
NO_ROOT = "a root of its own: names, sizes and times of files outside can be read"
NO_BOUND = "a bounded file system: files are counted while code runs"


def confine(plan: Plan, readable: list[str]) -> ConfinementGaps:
    """Confines this process to a folder it may write to, and files and folders it may read. Missing
    may be: limits, privileges, network, files, system calls."""
    missing = []
    lacks: list[str] = []
    bounded: list[bool] = []
    steps: list[tuple[str, Callable[[], None]]] = [
        ("limits", lambda: limit(plan.memory, plan.file_size)),
        ("network", lambda: lacks.extend(enter_namespaces(plan))),
        ("limits", lambda: bounded.extend([True] * bound_threads())),
        ("privileges", drop_privileges),
        ("files", lambda: landlock(plan.scratch, readable)),
        ("system calls", seccomp),
    ]
    for name, step in steps:
        try:
            step()
        except (OSError, KeyError, AttributeError, ValueError):
            missing.append(name)
    if plan.proc >= 0:
        os.close(plan.proc)
    if "network" in missing:
        lacks += [NO_ROOT, NO_BOUND] if plan.visible else [NO_BOUND]
    if "system calls" not in missing and "network" in missing:
        missing.remove("network")  # no socket can be made, in whichever namespace
    return ConfinementGaps(missing, lacks, bool(bounded))


def limit(memory: int, file_size: int) -> None:
    """Sets the resource limits."""
    for what, value in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_FSIZE, file_size),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (value, value))


def bound_threads() -> bool:
    """Bounds threads by RLIMIT_NPROC, which in a user namespace counts those in it alone; returns
    whether it holds this process, as it does not hold root."""
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (1, hard))
    if starts_thread():
        return False
    most = MOST_THREADS if hard == resource.RLIM_INFINITY else min(MOST_THREADS, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (most, hard))
    if not starts_thread():  # an old kernel, which counts all that the user runs
        resource.setrlimit(resource.RLIMIT_NPROC, (hard, hard))
        return False
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    return True


def starts_thread() -> bool:
    """Whether this process can have another thread."""
    thread = threading.Thread(target=int)
    try:
        thread.start()
    except RuntimeError:
        return False
    thread.join()
    return True


def enter_namespaces(plan: Plan) -> list[str]:
    """Moves into a network with nothing in it, and a root with nothing but `visible` and `scratch`.
    Returns what could not be had there. Raises OSError where there are no namespaces."""
    user, group = os.getuid(), os.getgid()
    require_success(libc.unshare(NEW_USER | NEW_NETWORK | NEW_MOUNTS | NEW_IPC))
    try:
        for name, line in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            entry = os.open(f"self/{name}", os.O_WRONLY, dir_fd=plan.proc)
            try:
                os.write(entry, line.encode())
            finally:
                os.close(entry)
        mount("", "/", "", MS_REC | MS_PRIVATE)
    except OSError:
        return [NO_ROOT, NO_BOUND] if plan.visible else [NO_BOUND]
    lacks = []
    if plan.visible:
        try:
            enter_root(plan)
        except OSError:
            lacks.append(NO_ROOT)
    try:
        options = f"size={plan.files},nr_inodes={plan.entries},mode=700"
        mount("tmpfs", plan.scratch, "tmpfs", MS_NOSUID | MS_NODEV, options)
    except OSError:
        lacks.append(NO_BOUND)
    os.chdir(plan.scratch)
    return lacks


def enter_root(plan: Plan) -> None:
    """Makes a root of `visible`, `links` and an empty scratch folder, and leaves the one there was.
    Raises OSError, with nothing done."""
    root = plan.scratch  # any folder will do to make it in
    mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755")
    try:
        os.makedirs(root + plan.scratch)
        for path in plan.visible:
            inside = root + path
            if os.path.isdir(path):
                os.makedirs(inside, exist_ok=True)
            else:
                os.makedirs(os.path.dirname(inside), exist_ok=True)
                os.close(os.open(inside, os.O_WRONLY | os.O_CREAT, 0o600))
            mount(path, inside, "", MS_BIND | MS_REC)
        for link, target in plan.links.items():
            os.makedirs(os.path.dirname(root + link), exist_ok=True)
            os.symlink(target, root + link)
        os.chdir(root)
        require_success(libc.syscall(PIVOT_ROOT[column()], b".", b"."))
    except OSError:
        os.chdir("/")
        libc.umount2(root.encode(), DETACH)
        raise
    require_success(libc.umount2(b".", DETACH))
    os.chdir("/")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Calls mount(2). Raises OSError."""
    words = [word.encode() or None for word in (source, target, kind)]
    require_success(libc.mount(*words, ctypes.c_ulong(flags), options.encode() or None))


def drop_privileges() -> None:
    """Gives up every capability, and that any program run later could give one back."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    header = struct.pack("Ii", 0x20080522, 0)
    require_success(libc.syscall(CAPSET[column()], header, bytes(24)))


def landlock_abi() -> int:
    """The version of this kernel's Landlock. Raises OSError where there is none."""
    if sys.platform != "linux":  # the number is another call's there
        raise OSError(errno.ENOSYS, "no Landlock")
    abi = int(libc.syscall(LANDLOCK_CREATE, None, 0, 1))
    require_success(abi)
    return abi


def landlock(scratch: str, readable: list[str]) -> None:
    """Leaves `scratch` to write to, and `readable` to read."""
    abi = landlock_abi()
    rights = (1 << (13 + (abi >= 2) + (abi >= 3) + (abi >= 5))) - 1
    attributes = struct.pack("QQQ", rights, 3 if abi >= 4 else 0, 3 if abi >= 6 else 0)
    ruleset = libc.syscall(
        LANDLOCK_CREATE, attributes, 24 if abi >= 6 else 16 if abi >= 4 else 8, 0
    )
    require_success(ruleset)
    everything = rights & ~EXECUTE
    for path, allowed in [(scratch, everything), *((p, READ_FILE | READ_DIR) for p in readable)]:
        try:
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:  # what is not there need not be read
            continue
        if not os.path.isdir(path):
            allowed &= READ_FILE | WRITE_FILE
        require_success(
            libc.syscall(LANDLOCK_ADD, ruleset, 1, struct.pack("=Qi", allowed, handle), 0)
        )
        os.close(handle)
    require_success(libc.syscall(LANDLOCK_RESTRICT, ruleset, 0))
    os.close(ruleset)


def seccomp() -> None:
    """Lets through what ALLOWED and the rules list; EPERM is what everything else gives. Before
    that it ties this process to its parent's life, which the filter keeps so."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    code = program()
    buffer = ctypes.create_string_buffer(b"".join(code))
    filter = struct.pack("HxxxxxxP", len(code), ctypes.addressof(buffer))
    prctl(PR_SET_SECCOMP, 2, ctypes.create_string_buffer(filter))


def program() -> list[bytes]:
    """The filter as classic BPF: load, mask, compare and return, one instruction each."""

    def load(offset: int) -> bytes:
        return struct.pack("HBBI", 0x20, 0, 0, offset)

    def keep(mask: int) -> bytes:
        return struct.pack("HBBI", 0x54, 0, 0, mask)

    def equal(value: int, yes: int, no: int) -> bytes:
        return struct.pack("HBBI", 0x15, yes, no, value)

    def answer(action: int) -> bytes:
        return struct.pack("HBBI", 0x06, 0, 0, action)

    code = [load(4), equal(AUDIT_ARCH[platform.machine()], 1, 0), answer(KILL), load(0)]
    for numbers in ALLOWED.values():
        number = numbers[column()]
        if number is not None:
            code += [equal(number, 0, 1), answer(ALLOW)]
    # glibc falls back from clone3, whose flags no filter can read, to clone:
    code += [equal(CLONE3[column()], 0, 1), answer(REFUSE | errno.ENOSYS)]
    # x32, which has numbers of its own on x86_64, is beyond this too:
    code += [struct.pack("HBBI", 0x35, 0, 1, UNKNOWN), answer(REFUSE | errno.ENOSYS)]
    for rule in rules():
        number = rule.numbers[column()]
        if number is None:
            continue
        tests = [answer(ALLOW)]
        for check in reversed(rule.checks):
            *others, last = check.values
            compares = [equal(value, len(others) - at, 0) for at, value in enumerate(others)]
            compares.append(equal(last, 0, len(tests)))
            tests = [load(check.offset), keep(check.mask), *compares, *tests]
        code += [load(0), equal(number, 0, len(tests)), *tests]
    return [*code, answer(REFUSE | errno.EPERM)]


def column() -> int:
    """Where this machine's numbers stand above. Raises KeyError for one unknown."""
    return {"x86_64": 0, "aarch64": 1}[platform.machine()]


def prctl(option: int, *values: object) -> None:
    """Calls prctl(2). Raises OSError."""
    padded = [*values, *[0] * (4 - len(values))]
    require_success(
        libc.prctl(option, *(ctypes.c_ulong(v) if isinstance(v, int) else v for v in padded))
    )


def require_success(result: int) -> None:
    """Raises OSError for a negative result."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def python_files() -> list[str]:
    """What Python itself has to read: its libraries, and those of the system. Of an environment's
    folder, which may be a project's own, that is no more than its libraries."""
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix}
    own = {os.path.join(prefix, name) for prefix in prefixes for name in ("lib", "lib64", "share")}
    own |= {path for path in sys.path if path.rstrip("/").endswith("-packages")}
    own.add(os.path.dirname(os.__file__))
    system = ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64", "/etc/ld.so.cache"]
    return [*sorted(own | set(system)), *DEVICES]
