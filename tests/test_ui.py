"""The frame of the pages: who is let in, what a browser may load, what texts can do."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
from conftest import ROOT, Cli
from ui_demo import BEGIN, demo
from ui_records import every_record
from ui_rig import OTHER, TOKEN, Visitor, crawl, store_at

STATIC = ROOT / "tfgrpo/ui/static"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return store_at(tmp_path, "Count both days.", "Round up.")


def test_every_script_and_style_of_others_is_the_file_on_record() -> None:
    record = json.loads((STATIC / "vendor.json").read_text())
    for name, told in record.items():
        assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest() == told["sha256"], name
        assert (STATIC / told["licence_file"]).read_text().strip(), name
        assert told["version"], name
        assert told["tarball"].startswith("sha512-"), name
    ours = {"ui.css", "ui.js", "history.js", "icon.svg", "vendor.json"}
    others = {path.name for path in STATIC.iterdir() if path.suffix != ".LICENSE"} - ours
    assert others == set(record)


def test_nobody_is_let_in_without_a_token_or_with_a_wrong_one(store: Path) -> None:
    stranger = Visitor(store, token=None)
    for path in ("/", "/library/HEAD", "/nowhere", "/?token=guess", "/?token="):
        answer = stranger.client.get(path)
        assert answer.status_code == 401, path
        assert "Count both" not in answer.text
    assert "set-cookie" not in stranger.client.get("/?token=guess").headers


def test_a_token_becomes_a_cookie_and_leaves_the_address(store: Path) -> None:
    stranger = Visitor(store, token=None)
    answer = stranger.client.get(f"/?a=1&token={TOKEN}", follow_redirects=False)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/?a=1"
    made = answer.headers["set-cookie"]
    assert "HttpOnly" in made
    assert "SameSite=lax" in made
    assert TOKEN not in made
    assert stranger.client.get("/").status_code == 200
    away = stranger.client.get(f"//evil.test/?token={TOKEN}", follow_redirects=False)
    assert not away.headers.get("location", "/").startswith("//")


@pytest.mark.parametrize("host", ["evil.test", "127.0.0.1.evil.test:7433", "", "0.0.0.0", "[x"])
def test_another_host_name_is_refused(store: Path, host: str) -> None:
    visitor = Visitor(store)
    assert visitor.client.get("/", headers={"host": host}).status_code == 400


def test_a_name_that_was_given_is_answered(store: Path) -> None:
    visitor = Visitor(store, names=("lessons.example",))
    assert visitor.client.get("/static/ui.css", headers={"host": "lessons.example"}).is_success


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.test"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
    ids=lambda headers: " ".join(headers.values()),
)
def test_a_form_of_another_site_is_refused(store: Path, headers: dict[str, str]) -> None:
    visitor = Visitor(store)
    form = {"csrf": visitor.csrf()}
    assert visitor.client.post("/", data=form, headers=headers).status_code == 403


def test_every_answer_forbids_what_is_not_ours(store: Path) -> None:
    visitor = Visitor(store)
    for path in ("/", "/static/ui.css", "/nowhere", "/?token=wrong"):
        headers = visitor.client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
    assert visitor.client.put("/").status_code == 405


def test_no_template_has_a_script_or_style_of_its_own() -> None:
    for path in (ROOT / "tfgrpo/ui/templates").iterdir():
        text = path.read_text()
        assert " style=" not in text, path.name
        assert "<style" not in text, path.name
        assert " onclick" not in text, path.name
        assert text.count("<script") == text.count("<script src="), path.name
        assert "| safe" not in text, path.name
        assert "http://" not in text.replace("http://www.w3.org", ""), path.name
        assert "https://" not in text, path.name


def test_what_a_form_holds_is_the_text_itself_in_every_template() -> None:
    control = re.compile(r' value="(\{\{[^"]*?\}\})"|</?textarea[^>]*>(\{\{.*?\}\})</textarea>')
    found = 0
    for path in (ROOT / "tfgrpo/ui/templates").iterdir():
        for match in control.finditer(path.read_text()):
            said = match[1] or match[2]
            assert said.endswith("| own }}"), (path.name, said)
            found += 1
    assert found > 50


def test_every_link_of_a_crawl_answers(store: Path) -> None:
    statuses = crawl(Visitor(store))
    assert {path: status for path, status in statuses.items() if status != 200} == {}
    assert len(statuses) > 30


def test_without_what_was_asked_and_said_no_link_leads_to_it(tmp_path: Path) -> None:
    statuses = crawl(Visitor(every_record(tmp_path, now=BEGIN), content=False), most=500)
    assert {path: status for path, status in statuses.items() if status != 200} == {}
    kinds = {path.partition("?")[0].split("/")[1] for path in statuses}
    assert kinds >= {"attempts", "calls", "version", "experience", "review"}
    assert not kinds & {"call", "group", "evaluation-group"}


def test_what_is_not_there_is_a_page_that_says_so(store: Path) -> None:
    page = Visitor(store).get("/nowhere", status=404)
    assert "there is no such page" in page
    assert '<nav aria-label="Pages">' in page


def test_each_person_has_a_name(store: Path) -> None:
    assert ">tester<" in Visitor(store).get("/")
    assert ">other<" in Visitor(store, token=OTHER).get("/")


def test_listening_beyond_this_machine_demands_logins(cli: Cli, tmp_path: Path) -> None:
    cli("init")
    done = cli("ui", "--host", "0.0.0.0", "--port", "0", ok=False)
    assert done.returncode == 2
    assert "--login" in done.stderr


def test_an_experiments_arms_are_shown_with_how_many_they_have(tmp_path: Path) -> None:
    page = Visitor(demo(tmp_path)).get("/production")
    assert "clearer" in page
    assert re.search(r"of \d+</span></td><td class=\"number\">", page)
    assert "built-in method" not in page


def test_static_files_travel_compressed(tmp_path: Path) -> None:
    visitor = Visitor(store_at(tmp_path, "Round up."))
    sizes = {}
    for name in ("ui.css", "htmx.min.js"):
        answer = visitor.client.get(f"/static/{name}", headers={"accept-encoding": "gzip"})
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.content == (STATIC / name).read_bytes()
        sizes[name] = int(answer.headers["content-length"])
        again = {"accept-encoding": "gzip", "if-none-match": answer.headers["etag"]}
        assert visitor.client.get(f"/static/{name}", headers=again).status_code == 304
    assert sum(sizes.values()) < 30_000
