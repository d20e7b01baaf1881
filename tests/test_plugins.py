"""Parts of a domain from elsewhere: a reward, a rollout, a retrieval and a group strategy, each by
`module:name` or by an entry point."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, one_line_error, problems
from scripted import ScriptedEndpoint, stage, teachable

from tfgrpo import domains
from tfgrpo.data.problems import Problem
from tfgrpo.domains import DomainError
from tfgrpo.domains.registry import with_data
from tfgrpo.project import file_permissions
from tfgrpo.store import Store
from tfgrpo.trust.permissions import parts, split

MINE = """
from tfgrpo.domains import Trajectory


def score(problem, response):
    return 0.25 if problem.answer in response else 0.75


async def served(problem, response):
    return len(response) % 2


async def attempt(context):
    recorded = await context.ask([("user", "Only this: " + context.problem.problem)])
    return Trajectory(recorded.answer.content, (recorded.key,))


def newest(library, text):
    return [experience.id for experience in reversed(list(library))]


def broken(library, text):
    return ["G0"]


def raises(library, text):
    return library.no_such_thing


def two(rewards, most):
    return 0 if rewards else 2


def until_mixed(rewards, most):
    return 1 if len(set(rewards)) < 2 else 0


def wrong(rewards, most):
    return "many"


NUMBER = 4
"""
ENTRY_POINTS = """[tfgrpo.rewards]
half = mine:score
[tfgrpo.rollouts]
bare = mine:attempt
[tfgrpo.retrievers]
newest = mine:newest
[tfgrpo.groups]
pair = mine:two
"""


@pytest.fixture
def here(cli: Cli, tmp_path: Path) -> Cli:
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "data.jsonl").write_text(problems(range(4)))
    cli("init")
    return cli


@pytest.fixture
def endpoint(request: pytest.FixtureRequest) -> Iterator[ScriptedEndpoint]:
    """A model on loopback that can be taught, or follows the script that a test names."""
    with ScriptedEndpoint(getattr(request, "param", teachable)) as running:
        yield running


@pytest.fixture
def small(endpoint: ScriptedEndpoint) -> tuple[str, ...]:
    going = ("--keep-going", "--patience", "5s")
    sizes = ("--epochs", "1", "--batch-size", "4", "--group-size", "4")
    return ("--model", "m", "--base-url", endpoint.base_url, *sizes, *going)


def rewards(folder: Path) -> list[float | None]:
    with Store.open(folder) as store:
        return [row.reward for row in store.rollouts("data")]


@pytest.mark.parametrize("place", ["mine:score", "mine:served"])
def test_a_reward_judges_in_the_place_of_the_verifier(
    here: Cli, tmp_path: Path, small: tuple[str, ...], place: str
) -> None:
    here("train", "data.jsonl", "--domain", f"math+reward={place}", *small)
    known = {0.25, 0.75} if place == "mine:score" else {0.0, 1.0}
    assert len(rewards(tmp_path)) == 16
    assert set(rewards(tmp_path)) <= known
    scored = here("eval", "data.jsonl", "--samples", "1", "--json", *small[:4]).stdout
    (one, *_) = json.loads(scored)["evaluations"]
    assert (one["conditions"]["domain"], bool(one["conditions"]["identity"])) == ("math", True)
    assert f"math+reward={place}" in here("runs", "data", "--json").stdout


def test_a_reward_needs_no_ground_truth(here: Cli, tmp_path: Path, small: tuple[str, ...]) -> None:
    rows = [{"problem": f"What is {n} op {n + 3}?"} for n in range(4)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    one_line_error(here("train", "data.jsonl", *small, ok=False), "no 'answer'")
    here("train", "data.jsonl", "--domain", "math+reward=mine:served", *small)


def test_a_rollout_makes_the_attempts(
    here: Cli, small: tuple[str, ...], endpoint: ScriptedEndpoint
) -> None:
    here("train", "data.jsonl", "--domain", "math+rollout=mine:attempt", *small)
    asked = [one["messages"] for one in endpoint.requests if one["messages"][0]["role"] == "user"]
    assert len(asked) >= 16
    assert all(one[0]["content"].startswith("Only this: ") for one in asked[:16])


@pytest.mark.parametrize("verb", ["train", "eval"])
def test_a_retrieval_chooses_what_a_prompt_gets(
    here: Cli, small: tuple[str, ...], endpoint: ScriptedEndpoint, verb: str
) -> None:
    for text in ("First of all, breathe.", "What is op? Add the numbers.", "Last of all, rest."):
        here("add", text)
    flags = small if verb == "train" else (*small[:4], "--samples", "1")
    top = ("--top-k", "1")
    here(verb, "data.jsonl", "--domain", "math+retrieve=mine:newest", *top, *flags)
    prompts = [str(one["messages"]) for one in endpoint.requests if stage(one) == "rollout"]
    assert len(prompts) >= 4
    assert all("Last of all" in one for one in prompts)
    assert not any("First of all" in one or "Add the numbers" in one for one in prompts)


@pytest.mark.parametrize(("name", "told"), [("broken", "'G0'"), ("raises", "no_such_thing")])
def test_a_retrieval_that_cannot_be_used_stops_the_run(
    here: Cli, small: tuple[str, ...], name: str, told: str
) -> None:
    here("add", "First of all, breathe.")
    here("add", "Last of all, rest.")
    top = ("--top-k", "1")
    spec = f"math+retrieve=mine:{name}"
    one_line_error(
        here("train", "data.jsonl", "--domain", spec, *top, *small, ok=False), told, name
    )


def test_a_group_strategy_says_how_many_attempts_are_made(
    here: Cli, tmp_path: Path, small: tuple[str, ...]
) -> None:
    here("train", "data.jsonl", "--domain", "math+group=mine:two", *small)
    assert len(rewards(tmp_path)) == 8
    here("train", "data.jsonl", "--domain", "math+group=mine:until_mixed", *small, "--run", "next")
    with Store.open(tmp_path) as store:
        rows = store.rollouts("next")
    by_problem: dict[str, list[Any]] = {}
    for row in rows:
        by_problem.setdefault(row.problem, []).append(row.reward)
    for values in by_problem.values():
        assert len(values) == 4 or (len(set(values)) == 2 and len(set(values[:-1])) == 1)


def test_a_group_strategy_has_its_place(here: Cli, small: tuple[str, ...]) -> None:
    spec = ("--domain", "math+group=mine:two")
    for more in (("--policy", "probation"),):
        done = here("train", "data.jsonl", *spec, *small, *more, ok=False)
        one_line_error(done, "--policy paper", code=2)
    spec = ("--domain", "math+group=mine:wrong")
    one_line_error(here("train", "data.jsonl", *spec, *small, ok=False), "group wrong", "'many'")


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("math+reward=nobody", "there is no reward 'nobody'"),
        ("math+reward=mine:nothing", "cannot load the reward mine:nothing"),
        ("math+reward=nowhere:at_all", "cannot load the reward nowhere:at_all"),
        ("math+reward=mine:NUMBER", "is a int, not a function"),
        ("math+colour=mine:score", "math has no part 'colour'"),
        ("math+rewards=half", "math has no part 'rewards'; did you mean reward?"),
    ],
)
def test_a_part_that_is_none_is_told(
    here: Cli, small: tuple[str, ...], spec: str, told: str
) -> None:
    one_line_error(here("train", "data.jsonl", "--domain", spec, *small, ok=False), told, code=2)


def test_packages_offer_parts_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    (info := tmp_path / "mine-1.0.dist-info").mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    domain = domains.find("math+reward=half+rollout=bare+retrieve=newest+group=pair")
    assert domain.judge is not None
    names = [one.__name__ for one in (domain.rollout, domain.retrieve, domain.group)]  # type: ignore[union-attr]
    assert names == ["attempt", "newest", "two"]
    with pytest.raises(DomainError, match=r"there is no group 'trio'\Z") as caught:
        domains.find("math+group=trio")
    assert "there is pair, or write group=module:name" in str(caught.value.hint)
    with pytest.raises(DomainError, match="there is no group 'pear'; did you mean pair\\?"):
        domains.find("math+group=pear")


def test_what_a_part_does_is_in_the_domains_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = set()
    for number, text in enumerate((MINE, MINE.replace("0.25", "0.3"))):
        (tmp_path / f"part{number}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        seen.add(domains.find(f"math:digits=4+reward=part{number}:score").identity)
    seen.add(domains.find("math:digits=4").identity)
    assert len(seen) == 3


def test_options_read_off_the_data_keep_the_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "labels_part.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    spec = "choice+reward=labels_part:score"
    there = [Problem("1", "?", "yes"), Problem("2", "?", "no+reward=x")]
    domain, named = with_data(domains.find(spec), spec, there)
    assert named == 'choice:["no+reward=x", "yes"]+reward=labels_part:score'
    assert domain.judge is not None
    assert domains.find(named).identity == domain.identity


@pytest.mark.parametrize(
    ("spec", "base", "places"),
    [
        ("math", "math", {}),
        ("math:digits=4+reward=m:f", "math:digits=4", {"reward": "m:f"}),
        ("a.b:C+group=g+retrieve=m.n:f.g", "a.b:C", {"group": "g", "retrieve": "m.n:f.g"}),
        ('choice:["a+reward=b","c"]', 'choice:["a+reward=b","c"]', {}),
        ("rubric:a+b.toml", "rubric:a+b.toml", {}),
    ],
)
def test_a_name_is_taken_apart(spec: str, base: str, places: dict[str, str]) -> None:
    found, written = split(spec)
    assert (found, parts(written), found + written) == (base, places, spec)


@pytest.mark.parametrize(
    ("spec", "modules"),
    [
        ("math+reward=mine:score", {"mine"}),
        ("math:digits=4+reward=mine:score+group=other:two", {"mine", "other"}),
        ("theirs:DOMAIN+retrieve=mine:newest", {"theirs", "mine"}),
        ("rubric:style.toml+reward=mine:score", {"mine", "judging"}),
        ("math+reward=half", set()),
    ],
)
def test_a_module_of_a_part_needs_trust(tmp_path: Path, spec: str, modules: set[str]) -> None:
    (tmp_path / "style.toml").write_text('[[criteria]]\nname = "x"\npython = "judging:polite"\n')
    (tmp_path / "tfgrpo.toml").write_text(f'[train]\ndomain = "{spec}"\n')
    words = " ".join(
        words for one in file_permissions(tmp_path / "tfgrpo.toml") for words in one.words
    )
    assert {name for name in ("mine", "other", "theirs", "judging") if name in words} == modules


def test_a_part_of_a_strangers_folder_is_not_run_before_it_is_trusted(
    here: Cli, tmp_path: Path, small: tuple[str, ...]
) -> None:
    (tmp_path / "mine.py").write_text("open('ran', 'w').close()\n" + MINE)
    (tmp_path / "tfgrpo.toml").write_text('[train]\ndomain = "math:digits=4+reward=mine:score"\n')
    env = {"TFGRPO_TRUST": "", "XDG_STATE_HOME": str(tmp_path / "state")}
    done = here("train", "data.jsonl", *small, ok=False, env=env)
    assert done.returncode != 0
    assert "imports the Python module mine" in " ".join(done.stderr.split())
    assert not (tmp_path / "ran").exists()
    here("trust", "--yes", env=env)
    here("train", "data.jsonl", *small, env=env)
    assert (tmp_path / "ran").exists()


def looked_again(request: dict[str, Any]) -> str:
    asked = request["messages"]
    return "I did." if asked[-1]["content"] == "Check that." else teachable(request)


@pytest.mark.parametrize("endpoint", [looked_again], indirect=True)
def test_the_page_runs(here: Cli, tmp_path: Path, small: tuple[str, ...]) -> None:
    page = (Path(__file__).parents[1] / "docs/extending.md").read_text()
    (tmp_path / "mine.py").write_text(
        page.split("<!-- file: mine.py -->\n```python\n")[1].split("```")[0]
    )
    places = {"reward": "score", "rollout": "twice", "retrieve": "newest", "group": "until_mixed"}
    spec = "math" + "".join(f"+{part}=mine:{name}" for part, name in places.items())
    here("train", "data.jsonl", "--domain", spec, "--top-k", "8", *small)
    with Store.open(tmp_path) as store:
        rows = store.rollouts("data")
        assert all(row.reward is not None for row in rows)
        assert all(len(row.calls) == 2 for row in rows)
