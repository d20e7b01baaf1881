"""Datasets by name or file, and samples of them.

    problems.jsonl  data.csv.gz  rows.xlsx      a file: JSONL, JSON, CSV, TSV, Excel or parquet
    aime24  gsm8k/train                         one of the Hugging Face hub's, and a split of it
    gsm8k:100  data.jsonl:100@seed42            the first 100, or 100 drawn with a seed

A file wins over a name; other spellings of a name (`AIME24`, a repository's) become ours.
"""

from __future__ import annotations

import importlib
import os
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tfgrpo.data import problems
from tfgrpo.data.problems import Problem
from tfgrpo.data.readers import EXTRA, DatasetError, Row, read
from tfgrpo.store.errors import install_hint
from tfgrpo.wording import did_you_mean

SPEC = re.compile(r"(?P<source>.+?)(?::(?P<count>\d+)(?:@seed(?P<seed>\d+))?)?\Z", re.DOTALL)


class Known(NamedTuple):
    """A dataset of the hub: the repository, its configuration, and the split that is meant."""

    repository: str
    configuration: str | None
    split: str


KNOWN = {
    "afm-web": Known("PersonalAILab/AFM-WebAgent-RL-Dataset", None, "train"),
    "aime24": Known("HuggingFaceH4/aime_2024", None, "train"),
    "aime25": Known("math-ai/aime25", None, "test"),
    "dapo-math-17k": Known("open-r1/DAPO-Math-17k-Processed", "all", "train"),
    "gsm8k": Known("openai/gsm8k", "main", "test"),
    "math-500": Known("HuggingFaceH4/MATH-500", None, "test"),
    "webwalkerqa": Known("callanwu/WebWalkerQA", None, "main"),
}

ALSO = {
    "afmwebrl": "afm-web",
    "aime2024": "aime24",
    "aime2025": "aime25",
    "bytedtsinghuasia/dapomath17k": "dapo-math-17k",
    "dapo": "dapo-math-17k",
    "dapomath": "dapo-math-17k",
    "dapomath17kprocessed": "dapo-math-17k",
    "huggingfaceh4/math500": "math-500",
    "maxwelljia/aime2024": "aime24",
    "opencompass/aime2025": "aime25",
    "webwalker": "webwalkerqa",
}
"""What else they are called, without case, hyphens and the like."""


def known(source: str) -> str | None:
    """Our name of a dataset of the hub, `gsm8k/train`, by any that is used for it; else None."""
    names = {_plain(name): name for name in KNOWN}
    names |= {_plain(place.repository): name for name, place in KNOWN.items()} | ALSO
    if _plain(source) in names:
        return names[_plain(source)]
    name, slash, split = source.rpartition("/")
    short = names.get(_plain(name)) if slash and split else None
    return short and f"{short}/{split}"


def _plain(name: str) -> str:
    return re.sub(r"[-_. ]", "", name).casefold()


@dataclass(frozen=True, slots=True)
class DatasetSpec:
    """What a dataset's name says: the source, how many problems of it, and a sample's seed.
    `on_hub`: the source is a dataset of the hub, as there is no such file."""

    source: str
    count: int | None = None
    seed: int | None = None
    on_hub: bool = False

    @property
    def sample(self) -> str:
        """The part of the name that says which problems: `:100@seed42`, or nothing."""
        count = "" if self.count is None else f":{self.count}"
        return count + ("" if self.seed is None else f"@seed{self.seed}")


def parse(name: str, folder: Path | str = "") -> DatasetSpec:
    """Takes a dataset's name apart, as it is written in a folder, this one if none is given. A file
    is a file, whether its name has a colon or is called as a dataset of the hub is."""
    match = SPEC.match(name)
    if match is None or os.path.exists(os.path.join(folder, name)):
        return DatasetSpec(name)
    source = match["source"]
    called = None if os.path.exists(os.path.join(folder, source)) else known(source)
    count, seed = (None if match[part] is None else int(match[part]) for part in ("count", "seed"))
    return DatasetSpec(called or source, count, seed, called is not None)


def stem(name: str) -> str:
    """What a run on a dataset is called: the file's or the dataset's name."""
    spec = parse(name)
    return spec.source.replace("/", "-") if spec.on_hub else Path(spec.source).stem


def load(
    name: str,
    fields: Mapping[str, str] | None = None,
    *,
    extra: Sequence[str] = (),
    ground_truth: bool = True,
    as_json: bool = False,
) -> tuple[Problem, ...]:
    """The problems of a dataset, read and checked before a sample is taken; `fields`, `extra`,
    `ground_truth` and `as_json` are those of `problems.of_rows`. Raises DatasetError."""
    spec = parse(name)
    rows = hub_rows(spec.source) if spec.on_hub else _file_rows(spec.source)
    loaded = problems.of_rows(
        rows, spec.source, fields, extra=extra, ground_truth=ground_truth, as_json=as_json
    )
    return sample(loaded, spec)


def sample(loaded: tuple[Problem, ...], spec: DatasetSpec) -> tuple[Problem, ...]:
    """The problems that a name asks for, in order. Raises DatasetError when there are too few."""
    if spec.count is None:
        return loaded
    if not 0 < spec.count <= len(loaded):
        raise DatasetError(
            f"{spec.source} has {len(loaded)} problems, not {spec.count}",
            hint=f"write {spec.source}:{len(loaded)} or less",
        )
    if spec.seed is None:
        return loaded[: spec.count]
    chosen = random.Random(f"tfgrpo/{spec.seed}").sample(range(len(loaded)), spec.count)
    return tuple(loaded[i] for i in sorted(chosen))


def hub_rows(name: str) -> Iterator[Row]:
    """Yields the rows of a dataset of the hub, `gsm8k` or `gsm8k/train`. Raises DatasetError."""
    short, _, split = name.partition("/")
    repository, configuration, usual = KNOWN[short]
    try:
        datasets = importlib.import_module("datasets")
    except ImportError:
        raise DatasetError(
            f"{name} is on the Hugging Face hub, which needs the datasets package",
            hint=f"{install_hint(EXTRA)} ([{EXTRA}] is the extra that downloads datasets), "
            "or use a file",
        ) from None
    datasets.disable_progress_bars()
    try:
        rows = datasets.load_dataset(repository, configuration, split=split or usual)
    except Exception as error:  # of many kinds: the network's, the hub's, a split's that is not
        message = " ".join(str(error).split())[:200]
        raise DatasetError(
            f"cannot get {name} ({repository}) from the Hugging Face hub: {message}",
            hint="without a network, use a file: JSONL, JSON, CSV, Excel or Parquet, or a folder "
            "that `datasets` saved",
        ) from error
    for number, row in enumerate(rows, 1):
        yield Row(number, f"{name}:{number}", row)


def _file_rows(source: str) -> Iterator[Row]:
    path = Path(source)
    if not os.path.exists(path) and not path.suffix and "/" not in source:
        raise DatasetError(
            f"there is no file or known dataset called {source}"
            + did_you_mean(source.casefold(), KNOWN, "; "),
            hint="known datasets are " + ", ".join(KNOWN),
        )
    return read(path)
