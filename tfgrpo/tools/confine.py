"""Confines the process that calls it, for good: before any foreign code runs in it.

This file runs inside the sandbox and needs the standard library alone. On Linux it takes away,
in this order: the network, by a namespace of its own where that is allowed; every capability,
those of that namespace too; every file but Python's own (to read) and a scratch folder, by
Landlock; and, by a seccomp filter, sockets, new processes and programs, signals, tracing,
namespaces, and what else could reach beyond the process. Resource limits bound memory, files and
core dumps. It dies with its parent, and cannot undo that.

`confine` returns the names of what it could not take away: an empty list is a whole sandbox.
Landlock: kernel.org/doc/html/latest/userspace-api/landlock.html. seccomp: seccomp(2).
"""

import ctypes
import errno
import os
import platform
import resource
import signal
import struct
import sys
from collections.abc import Callable

DENIED = {  # system call → its number on x86_64 and on aarch64 (None: there is none)
    "socket": (41, 198),
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "setpgid": (109, 154),
    "setsid": (112, 157),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "prlimit64": (302, 261),
    "setpriority": (141, 140),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setaffinity": (203, 122),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "process_madvise": (440, 440),
    "ioprio_set": (251, 30),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_by_handle_at": (304, 265),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
}
PR_SET_PDEATHSIG, F_SETOWN, F_SETOWN_EX = 1, 8, 15
DENIED_WITH = [  # numbers as above, which argument, and the value it may not have
    ((157, 167), 0, PR_SET_PDEATHSIG),  # prctl
    ((72, 25), 1, F_SETOWN),  # fcntl: a signal to whoever is named
    ((72, 25), 1, F_SETOWN_EX),
]
CLONE, CLONE3 = (56, 220), (435, 435)
CLONE_THREAD, CLONE_NEWUSER, CLONE_NEWNET = 0x00010000, 0x10000000, 0x40000000
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
X32 = 0x40000000
ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050000, 0x80000000
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, PR_SET_DUMPABLE = 38, 22, 4
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
CAPSET = (126, 91)
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def confine(scratch: str, readable: list[str], *, memory: int, file_size: int) -> list[str]:
    """Confines this process to a folder it may write to, and files and folders it may read.

    `memory` and `file_size` are in bytes. Returns what could not be done: of limits,
    privileges, network, files, system calls.
    """
    missing = []
    steps: list[tuple[str, Callable[[], None]]] = [
        ("limits", lambda: limit(memory, file_size)),
        ("network", own_network),
        ("privileges", drop_privileges),
        ("files", lambda: landlock(scratch, readable)),
        ("system calls", seccomp),
    ]
    for name, step in steps:
        try:
            step()
        except (OSError, KeyError, AttributeError, ValueError):
            missing.append(name)
    if "system calls" not in missing and "network" in missing:
        missing.remove("network")  # no socket can be made, in whichever namespace
    return missing


def limit(memory: int, file_size: int) -> None:
    """Sets the resource limits. Processes are no matter of RLIMIT_NPROC, which root ignores."""
    for what, value in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_FSIZE, file_size),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (value, value))


def drop_privileges() -> None:
    """Gives up every capability, and that any program run later could give one back."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(PR_SET_DUMPABLE, 0)  # nobody of the same user may trace it
    header = struct.pack("Ii", 0x20080522, 0)
    check(libc.syscall(CAPSET[column()], header, bytes(24)))


def own_network() -> None:
    """Moves into a network of its own with nothing in it. It is all-powerful there at first."""
    check(libc.unshare(CLONE_NEWUSER | CLONE_NEWNET))


def landlock(scratch: str, readable: list[str]) -> None:
    """Leaves `scratch` to write to, and `readable` to read."""
    abi = libc.syscall(LANDLOCK_CREATE, None, 0, 1)
    check(abi)
    rights = (1 << (13 + (abi >= 2) + (abi >= 3) + (abi >= 5))) - 1
    attributes = struct.pack("QQQ", rights, 3 if abi >= 4 else 0, 3 if abi >= 6 else 0)
    ruleset = libc.syscall(
        LANDLOCK_CREATE, attributes, 24 if abi >= 6 else 16 if abi >= 4 else 8, 0
    )
    check(ruleset)
    everything = rights & ~EXECUTE
    for path, allowed in [(scratch, everything), *((p, READ_FILE | READ_DIR) for p in readable)]:
        try:
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:  # what is not there need not be read
            continue
        if not os.path.isdir(path):
            allowed &= READ_FILE | WRITE_FILE
        check(libc.syscall(LANDLOCK_ADD, ruleset, 1, struct.pack("=Qi", allowed, handle), 0))
        os.close(handle)
    check(libc.syscall(LANDLOCK_RESTRICT, ruleset, 0))
    os.close(ruleset)


def seccomp() -> None:
    """Refuses what DENIED lists, with EPERM; processes, but no threads, among it.

    Before that it ties this process to its parent's life, which the filter keeps so.
    """
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    code = program()
    buffer = ctypes.create_string_buffer(b"".join(code))
    filter = struct.pack("HxxxxxxP", len(code), ctypes.addressof(buffer))
    prctl(PR_SET_SECCOMP, 2, ctypes.create_string_buffer(filter))


def program() -> list[bytes]:
    """Returns the filter as classic BPF: load, compare and return, one instruction each."""

    def load(offset: int) -> bytes:
        return struct.pack("HBBI", 0x20, 0, 0, offset)

    def jump(compare: int, value: int, yes: int, no: int) -> bytes:
        return struct.pack("HBBI", compare, yes, no, value)

    def give(action: int) -> bytes:
        return struct.pack("HBBI", 0x06, 0, 0, action)

    equal, at_least, has_bit = 0x15, 0x35, 0x45
    refused = give(REFUSE | errno.EPERM)
    code = [load(4), jump(equal, AUDIT_ARCH[platform.machine()], 1, 0), give(KILL), load(0)]
    if platform.machine() == "x86_64":
        code += [jump(at_least, X32, 0, 1), refused]
    for pair in DENIED.values():
        number = pair[column()]
        if number is not None:
            code += [jump(equal, number, 0, 1), refused]
    for numbers, argument, value in DENIED_WITH:
        code += [
            jump(equal, numbers[column()], 0, 4),
            load(16 + 8 * argument),
            jump(equal, value, 0, 1),
            refused,
            load(0),
        ]
    # glibc falls back from clone3, whose flags no filter can read, to clone:
    code += [jump(equal, CLONE3[column()], 0, 1), give(REFUSE | errno.ENOSYS)]
    code += [
        jump(equal, CLONE[column()], 0, 3),
        load(16),
        jump(has_bit, CLONE_THREAD, 1, 0),
        refused,
    ]
    return [*code, give(ALLOW)]


def column() -> int:
    """Returns where this machine's numbers stand above. Raises KeyError for one unknown."""
    return {"x86_64": 0, "aarch64": 1}[platform.machine()]


def prctl(option: int, *values: object) -> None:
    """Calls prctl(2). Raises OSError."""
    padded = [*values, *[0] * (4 - len(values))]
    check(libc.prctl(option, *(ctypes.c_ulong(v) if isinstance(v, int) else v for v in padded)))


def check(result: int) -> None:
    """Raises OSError for a negative result."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def python_files() -> list[str]:
    """Returns what Python itself has to read: its libraries, and those of the system.

    Of an environment's folder, which may be a project's own, that is no more than its libraries.
    """
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix}
    own = {os.path.join(prefix, name) for prefix in prefixes for name in ("lib", "lib64", "share")}
    own |= {path for path in sys.path if path.rstrip("/").endswith("-packages")}
    own.add(os.path.dirname(os.__file__))
    system = ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64", "/etc/ld.so.cache"]
    return [*sorted(own | set(system)), *DEVICES]
