"""A block device that loses what was not synchronised, as disks do when the power goes.

A file system of one file, spoken to the kernel at /dev/fuse, holds the sectors; a loop device makes
a disk of the file, and ext4 lies on that. What is written is pending until the kernel asks for a
flush. `cut` drops what is pending, all of it or a part that chance chooses, and from then on every
write. Needs Linux, and rights to mount.

Run as a program it serves the file whose path it is given, and reads its orders from standard
input. `PowerDevice` is the other end. When that is killed, the program takes the disk away, with
what is mounted of it; where both are killed, the next `PowerDevice` does.
"""

from __future__ import annotations

import ctypes
import errno
import os
import random
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SIZE, SECTOR = 32 << 20, 4096
GETATTR, SETATTR, OPEN, READ, WRITE, STATFS, RELEASE, FSYNC = 3, 4, 14, 15, 16, 17, 18, 20
FORGET, FLUSH, INIT, INTERRUPT, DESTROY, FORGET_SEVERAL = 2, 25, 26, 36, 38, 42
"""Numbers of requests, as linux/fuse.h has them."""
DIRECT = 1
BEGINS = "tfgrpo-disk-"
"""How the name of a disk's file begins; the number of the process that uses it follows."""


class Disk:
    """The sectors: those on the disk, and those that are pending."""

    def __init__(self) -> None:
        self.kept = bytearray(SIZE)
        self.pending: dict[int, bytes] = {}
        self.is_on = True

    def read(self, at: int, size: int) -> bytes:
        first, last = at // SECTOR, -(-(at + size) // SECTOR)
        read = b"".join(self._sector(number) for number in range(first, last))
        return read[at - first * SECTOR :][:size]

    def write(self, at: int, data: bytes) -> None:
        if not self.is_on:
            return
        while data:
            number, within = divmod(at, SECTOR)
            sector = bytearray(self._sector(number))
            part = data[: SECTOR - within]
            sector[within : within + len(part)] = part
            self.pending[number] = bytes(sector)
            at, data = at + len(part), data[len(part) :]

    def flush(self) -> None:
        if self.is_on:
            self._keep(self.pending)

    def cut(self, seed: int | None) -> None:
        """Turns the disk off. Without a seed nothing that is pending was written, else a half."""
        chance = random.Random(seed)
        if seed is not None:
            self._keep({n: s for n, s in self.pending.items() if chance.random() < 0.5})
        self.pending.clear()
        self.is_on = False

    def _keep(self, sectors: dict[int, bytes]) -> None:
        for number, sector in sectors.items():
            self.kept[number * SECTOR : (number + 1) * SECTOR] = sector
        self.pending = {} if sectors is self.pending else self.pending

    def _sector(self, number: int) -> bytes:
        there = self.pending.get(number)
        return self.kept[number * SECTOR :][:SECTOR] if there is None else there


def serve(path: str) -> None:
    """Mounts the disk over the file at `path` and answers the kernel, until the input ends."""
    disk, lock = Disk(), threading.Lock()
    device = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=100600,user_id=0,group_id=0".encode()
    if libc.mount(b"fuse", path.encode(), b"fuse", 0, options):
        print(os.strerror(ctypes.get_errno()), flush=True)
        return
    threading.Thread(target=_answers, args=(device, disk, lock), daemon=True).start()
    try:
        print("ready", flush=True)
        for line in sys.stdin:
            order, _, word = line.strip().partition(" ")
            with lock:
                if order == "cut":
                    disk.cut(int(word) if word else None)
                elif order == "load":
                    disk.kept[:], disk.is_on = Path(word).read_bytes(), True
                elif order == "on":
                    disk.is_on = True
                elif order == "save":
                    disk.flush()
                    Path(word).write_bytes(disk.kept)
            print("done", flush=True)
    finally:
        clear(path)


def _answers(device: int, disk: Disk, lock: threading.Lock) -> None:
    while True:
        try:
            request = os.read(device, 1 << 20)
        except OSError as error:
            if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                continue
            return  # it is unmounted
        _, kind, number = struct.unpack_from("<IIQ", request)
        if kind in (FORGET, FORGET_SEVERAL, INTERRUPT):
            continue
        with lock:
            answer = _answer(disk, kind, request[40:])
        failed, body = (-answer, b"") if isinstance(answer, int) else (0, answer)
        os.write(device, struct.pack("<IiQ", 16 + len(body), failed, number) + body)


def _answer(disk: Disk, kind: int, body: bytes) -> bytes | int:
    """The body of an answer, or the number of an error."""
    if kind == INIT:
        return struct.pack("<4I2H2I2HI7I", 7, 31, 0, 0, 16, 12, 1 << 17, 1, 32, 0, 0, *[0] * 7)
    if kind in (GETATTR, SETATTR):
        times = [0] * 6
        mode, links, owner, group = 0o100600, 1, 0, 0
        attributes = (1, SIZE, SIZE // 512, *times, mode, links, owner, group, 0, SECTOR, 0)
        return struct.pack("<QII6Q10I", 0, 0, 0, *attributes)
    if kind == OPEN:
        return struct.pack("<QIi", 1, DIRECT, 0)
    if kind == READ:
        _, at, size = struct.unpack_from("<QQI", body)
        return disk.read(at, size)
    if kind == WRITE:
        _, at, size = struct.unpack_from("<QQI", body)
        disk.write(at, body[40 : 40 + size])
        return struct.pack("<II", size, 0)
    if kind == FSYNC:
        disk.flush()
    return b"" if kind in (FSYNC, FLUSH, RELEASE, DESTROY) else errno.ENOSYS


def clear(path: str) -> None:
    """Takes away the disk over the file at `path`, and what is mounted of it."""
    for loop in Path("/sys/block").glob("loop*"):
        with suppress(FileNotFoundError):  # it has none
            if (loop / "loop/backing_file").read_text().strip() == path:
                for _, place in mounts(f"/dev/{loop.name}"):
                    _try("umount", "--lazy", place)
                _try("losetup", "--detach", f"/dev/{loop.name}")
    _try("umount", "--lazy", path)


def clear_dead() -> None:
    """Takes away the disks that processes which are no more have left."""
    for _, place in mounts("fuse"):
        name = os.path.basename(place)
        if name.startswith(BEGINS) and not Path("/proc", name.removeprefix(BEGINS)).exists():
            clear(place)


def mounts(source: str = "") -> list[tuple[str, str]]:
    """Returns what is mounted, and where: all of it, or what is mounted of a source."""
    lines = (line.split(" ") for line in Path("/proc/self/mounts").read_text().splitlines())
    found = [(of, place.replace(r"\040", " ")) for of, place, *_ in lines]
    return [one for one in found if source in ("", one[0])]


class PowerDevice:
    """A disk in a folder. A context manager; raises OSError where it cannot be mounted."""

    def __init__(self, folder: Path) -> None:
        clear_dead()
        self._file = folder / f"{BEGINS}{os.getpid()}"
        self._file.touch()
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(self._file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        assert self._process.stdout is not None
        if (said := self._process.stdout.readline().strip()) != "ready":
            self._process.wait()
            raise OSError(f"cannot mount a file system: {said}")

    def __enter__(self) -> PowerDevice:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def format(self) -> None:
        """Makes an empty file system."""
        with self._loop() as loop:
            _run("mkfs.ext4", "-q", "-F", loop)

    @contextmanager
    def mounted(self, folder: Path) -> Iterator[None]:
        """The file system in a folder, for the length of the block."""
        with self._loop() as loop:
            _run("mount", "-t", "ext4", loop, str(folder))
            try:
                yield
            finally:
                _run("umount", str(folder))

    def order(self, *words: str) -> None:
        """Gives an order: `cut` and a seed, `on`, `load` and `save` with a file of sectors."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(words) + "\n")
        assert self._process.stdout.readline().strip() == "done"

    @contextmanager
    def _loop(self) -> Iterator[str]:
        loop = _run("losetup", "--find", "--show", str(self._file))
        try:
            yield loop
        finally:
            _run("losetup", "--detach", loop)


def _try(*command: str) -> None:
    """Runs a command for what another may be doing too."""
    subprocess.run(command, stderr=subprocess.DEVNULL, check=False)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout.strip()


if __name__ == "__main__":
    serve(sys.argv[1])
