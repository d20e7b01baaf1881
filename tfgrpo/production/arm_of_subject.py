"""Which arm of an experiment a subject gets: decided by a hash, so by any process alike.

A subject has a place between 0 and 1 that follows from the experiment and the subject alone. Those
below the share get the candidate; a larger share adds subjects to it and takes none away.
"""

from __future__ import annotations

import hashlib

CONTROL, CANDIDATE = "control", "candidate"


def place(experiment: str, subject: str) -> float:
    """Returns a subject's place, at least 0 and below 1, in the experiment of that id."""
    key = f"tfgrpo.experiment\0{experiment}\0{subject}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(key).digest()[:6], "big") / (1 << 48)


def arm_of(experiment: str, subject: str, share: float) -> str:
    """Returns the arm that a subject gets while the candidate has that share of subjects."""
    return CANDIDATE if place(experiment, subject) < share else CONTROL


def arm_name(name: str, arm: str) -> str:
    """Returns how an arm is named on record: `shorter/candidate`."""
    return f"{name}/{arm}"
