"""Settings: which layer wins, what is refused, and that no secret is echoed or kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tfgrpo.agents.agent_settings import AgentSettings
from tfgrpo.author import default_author
from tfgrpo.cli.train_prove import train as train_command
from tfgrpo.model.settings import ModelSettings
from tfgrpo.project import file_permissions, open_project
from tfgrpo.proxy.proxy_file import read_file
from tfgrpo.settings import EvalSettings, Settings, TrainSettings, build, option_of, read_toml
from tfgrpo.store.canonical import canonical
from tfgrpo.store.errors import SettingsError
from tfgrpo.tools.toolbox import ToolSettings

SECRET = "hunter22-secret"


def train(**values: object) -> TrainSettings:
    return build(TrainSettings, {"data": "d.jsonl", **values})


def test_the_defaults_are_the_papers() -> None:
    settings = train()
    assert (settings.epochs, settings.batch_size, settings.group_size) == (3, 100, 5)
    assert (settings.temperature, settings.concurrency) == (0.7, 128)
    assert build(EvalSettings, {"data": "d"}).temperature == 0.3


def test_the_first_layer_that_has_a_value_wins_and_none_is_no_value() -> None:
    flags = {"data": "flags", "epochs": None, "model": "from-flags"}
    file = {"epochs": 7, "batch-size": 9, "model": "from-file", "data": "file"}
    defaults = {"branch": "b", "epochs": 1}
    settings = build(TrainSettings, flags, file, defaults)
    assert settings.data == "flags"
    assert settings.models.model == "from-flags"
    assert (settings.epochs, settings.batch_size, settings.branch) == (7, 9, "b")
    assert settings.group_size == 5


names = st.sampled_from(["epochs", "batch_size", "group_size", "seed", "max_tokens"])
layers = st.lists(
    st.dictionaries(names, st.one_of(st.none(), st.integers(2, 50)), max_size=5), max_size=4
)


@given(layers)
def test_precedence_holds_for_any_layers(found: list[dict[str, int | None]]) -> None:
    settings = build(TrainSettings, {"data": "d"}, *found)
    untouched = build(TrainSettings, {"data": "d"})
    for name in ("epochs", "batch_size", "group_size", "seed", "max_tokens"):
        given = [layer[name] for layer in found if layer.get(name) is not None]
        expected = given[0] if given else getattr(untouched, name)
        assert getattr(settings, name) == expected


def test_what_is_kept_in_a_record_comes_back_as_the_same_settings() -> None:
    settings = train(model="m", base_url="http://h:1/v1", fields={"answer": "gold"}, epochs=2)
    assert TrainSettings(**settings.model_dump(mode="json")) == settings


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        train().epochs = 9


def test_an_unknown_key_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match="epoch_count") as caught:
        train(epoch_count=3)
    assert caught.value.hint
    assert caught.value.exit_code == 2


OUT_OF_RANGE = [
    ("epochs", 0),
    ("epochs", "many"),
    ("epochs", 1.5),
    ("batch_size", 0),
    ("group_size", -1),
    ("concurrency", 0),
    ("concurrency", 20_000),
    ("temperature", -0.1),
    ("temperature", 2.1),
    ("temperature", float("nan")),
    ("max_tokens", 0),
    ("task_timeout", 0),
    ("task_timeout", float("nan")),
    ("heldout_samples", 0),
    ("heldout_problems", 0),
    ("fields", "answer=gold"),
    ("ground_truth", "perhaps"),
    ("data", 5),
    ("model", "gpt\udcff"),
    ("fields", {"kind": "\udcff"}),
]


@pytest.mark.parametrize(("name", "value"), OUT_OF_RANGE)
def test_a_value_out_of_range_is_refused_by_name_with_a_hint(name: str, value: object) -> None:
    with pytest.raises(SettingsError, match=name) as caught:
        train(**{name: value})
    assert caught.value.hint


@pytest.mark.parametrize("value", [float("inf"), 1e308])
def test_every_setting_that_is_taken_can_be_kept_in_a_record(value: float) -> None:
    try:
        settings = train(task_timeout=value)
    except SettingsError:
        return
    assert canonical(settings.model_dump(mode="json"))


SECRETS = [
    ("base_url", f"https://me:{SECRET}@host/v1"),
    ("base_url", f"https://{SECRET}@host/v1"),
    ("base_url", f"https://host/v1?api-key={SECRET}"),
    ("base_url", f"https://host/v1#{SECRET}"),
    ("base_url", SECRET),
    ("base_url", f"http://[{SECRET}"),
    ("reflection_base_url", f"https://me:{SECRET}@host/v1"),
    ("api_key_env", f"sk-{SECRET}"),
    ("api_key_env", f"{SECRET}\n"),
    ("reflection_api_key_env", f"sk-{SECRET}"),
]


@pytest.mark.parametrize(("name", "value"), SECRETS)
def test_a_secret_in_the_wrong_place_is_refused_and_not_echoed(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name) as caught:
        train(**{name: value})
    error = caught.value
    assert SECRET not in f"{error}{error!r}{error.hint}"


def test_a_plain_address_and_the_name_of_a_variable_are_taken() -> None:
    settings = train(base_url="http://127.0.0.1:8000/v1", api_key_env="MY_KEY_2")
    assert settings.models.base_url == "http://127.0.0.1:8000/v1"
    assert settings.models.api_key_env == "MY_KEY_2"


def test_a_settings_file_has_its_four_tables(tmp_path: Path) -> None:
    path = tmp_path / "tfgrpo.toml"
    path.write_text('[model]\nmodel = "m"\n[train]\nepochs = 2\n[eval]\n[prices]\n')
    assert read_toml(path) == {"model": {"model": "m"}, "train": {"epochs": 2}} | {
        "eval": {},
        "prices": {},
    }


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_settings_file_may_begin_with_a_mark_of_its_encoding(
    tmp_path: Path, encoding: str
) -> None:
    file = tmp_path / "tfgrpo.toml"
    file.write_text('author = "Zoë"\n[train]\nepochs = 1\n', encoding=encoding)
    assert read_toml(file) == {"train": {"epochs": 1}}
    assert default_author(str(tmp_path)) == os.environ.get("TFGRPO_AUTHOR", "Zoë")
    assert file_permissions(file)
    proxy = tmp_path / "proxy.toml"
    proxy.write_text("port = 9000\n", encoding=encoding)
    assert read_file(proxy)["port"] == 9000


def test_a_setting_is_written_with_dashes_too_and_a_models_name_stays(tmp_path: Path) -> None:
    text = '[model]\nbase-url = "http://127.0.0.1:9/v1"\n[prices]\ngpt-4o = [1, 2]\n'
    (tmp_path / "tfgrpo.toml").write_text(text)
    project = open_project(tmp_path)
    assert project.table("model") == {"base_url": "http://127.0.0.1:9/v1"}
    assert project.table("prices") == {"gpt-4o": [1, 2]}


@pytest.mark.parametrize("content", [b"[trian]\n", b"epochs = 3\n", b"[train\n", b"\xff\xfe"])
def test_a_settings_file_that_cannot_be_used_is_refused_by_name(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "tfgrpo.toml"
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=r"tfgrpo\.toml") as caught:
        read_toml(path)
    assert caught.value.hint
    with pytest.raises(SettingsError):
        read_toml(tmp_path / "none.toml")


WRONG: list[tuple[dict[str, object], str]] = [
    ({"agent": {"run": 3}}, "see --agent in `--help-all`"),
    ({"agent": {"workspace": 3}}, "see --workspace in `--help-all`"),
    ({"agent": {"answer_file": 3}}, "see --answer-file in `--help-all`"),
    ({"agent": {"memory": 1}}, "it is memory in [agent] of tfgrpo.toml"),
    ({"agent": {"copy_limit": 0}}, "it is copy_limit in [agent] of tfgrpo.toml"),
    ({"agent": 3}, "see [agent] of tfgrpo.toml"),
    ({"tools": {"use": ["x"]}}, "it is use in [tools] of tfgrpo.toml"),
    ({"tools": {"corpus": 3}}, "see --corpus in `--help-all`"),
    ({"tools": {"provider": "x"}}, "see [tools] of tfgrpo.toml"),
    ({"tools": {"mcp": {"a": {"command": 3}}}}, "it is mcp in [tools] of tfgrpo.toml"),
    ({"extra_body": 3}, "it is extra_body in [model] of tfgrpo.toml"),
    ({"extra_headers": 3}, "it is extra_headers in [model] of tfgrpo.toml"),
    ({"base_url": 3}, "see --base-url in `--help-all`"),
    ({"fields": {"answer": 3}}, "see --field in `--help-all`"),
    ({"group_size": 0}, "see --group-size in `--help-all`"),
    ({"data": 3}, "it is data in [train] of tfgrpo.toml"),
    ({"group_size": 1, "policy": "probation"}, "`--help-all` lists them"),
]


@pytest.mark.parametrize(("values", "hint"), WRONG)
def test_the_hint_of_a_wrong_value_names_an_option_that_there_is_or_its_table(
    values: dict[str, object], hint: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        build(TrainSettings, values, {"data": "d.jsonl"})
    assert caught.value.hint == hint


def test_every_option_that_a_hint_can_name_is_one_of_train() -> None:
    there = {option for parameter in train_command.params for option in parameter.opts}
    records = (Settings, TrainSettings, AgentSettings, ToolSettings, ModelSettings)
    names = {option_of(record, name) for record in records for name in record.model_fields}
    assert names - {None} <= there
    assert {"--agent", "--field", "--corpus", "--base-url", "--policy"} <= names


@pytest.mark.parametrize(
    ("content", "told", "hint"),
    [
        ("train = 3", "train is a table", "write [train]"),
        ("author = 3", "author is a name", 'write author = "ann"'),
        ("[author]", "author is a name", 'write author = "ann"'),
        ("commit = 3", "[commit] takes only sign and key", "sign = true"),
        (
            "[commit]\nsing = true",
            "[commit] takes only sign and key, and no sing",
            "did you mean sign? sign = true",
        ),
        ("[commit]\nsign = 1", "sign in [commit] is true or false", "sign = true"),
        ("[commit]\nkey = 1", "key in [commit] is a text", "id.pub"),
        ("[trian]", "there is no table [trian]", "did you mean [train]?"),
        ("epochs = 3", "epochs stands in no table", "settings go in [model], [train]"),
        ("[other]", "there is no table [other]", "author stands above them"),
    ],
)
def test_what_is_wrong_outside_of_the_tables_is_told_as_what_it_is(
    tmp_path: Path, content: str, told: str, hint: str
) -> None:
    path = tmp_path / "tfgrpo.toml"
    path.write_text(content + "\n")
    with pytest.raises(SettingsError) as caught:
        read_toml(path)
    assert str(caught.value) == f"{path}: {told}"
    assert hint in str(caught.value.hint)


def test_a_file_that_cannot_be_read_is_told_with_its_path_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tfgrpo.toml"
    path.mkdir()
    monkeypatch.delenv("TFGRPO_AUTHOR", raising=False)
    for read in (lambda: read_toml(path), lambda: default_author(str(tmp_path))):
        with pytest.raises(SettingsError) as error:
            read()
        assert str(error.value) == f"{path}: Is a directory"


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1.5 h", 5400), (45, 45)]
)
def test_patience_is_a_time(text: object, seconds: float) -> None:
    settings = build(TrainSettings, {"data": "d.jsonl", "patience": text})
    assert settings.patience == seconds
    assert TrainSettings(**settings.model_dump(mode="json")) == settings


@pytest.mark.parametrize("text", ["soon", "10 minutes", "-5", "inf", ""])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="patience"):
        build(TrainSettings, {"data": "d.jsonl", "patience": text})
