"""Every form of every page, sent after others changed every experience on every branch."""

from __future__ import annotations

import html
import re
from pathlib import Path

from test_ui_round_trips import ORIGIN, areas, hidden
from ui_demo import BEGIN
from ui_records import every_record
from ui_rig import Visitor, crawl

from tfgrpo.store import Operation, Store

FREE = ("/redact", "/logout", "/run-stop/", "/run-resume/")
"""What takes texts away on purpose, once it was said twice, and what asks a run."""
BUTTON = re.compile(r'<button[^>]* name="(\w+)" value="([^"]+)"')
CHOICE = re.compile(r'<(?:input type="radio"|option)[^>]*')


def filled(form: str) -> list[dict[str, str]]:
    """Returns what a form sends, once for each of its buttons: what stands in it, something where
    something is demanded, and the first of what can be chosen."""
    fields = hidden(form) | areas(form)
    for control in re.findall(r"<(?:input|select)[^>]*>", form):
        name, value = (re.search(rf' {what}="([^"]*)"', control) for what in ("name", "value"))
        if name is None or name[1] in fields or 'type="checkbox"' in control:
            continue
        said = html.unescape(value[1]) if value else ""
        fields[name[1]] = said or ("x" if " required" in control else "")
    fields.pop("csrf", None)
    buttons = BUTTON.findall(form)
    return [fields | {name: value} for name, value in buttons] or [fields]


def others_words(path: Path) -> dict[str, set[str]]:
    """Returns branch → the words of others that are in its library; but for the branches of
    proposals, each of which ends with its proposal."""
    with Store.open(path) as store:
        return {
            branch: {e.text for e in store.library(f"v{number}") if e.text.startswith("Ben: ")}
            for branch, number in store.branches().items()
            if not branch.startswith("proposal/")
        }


def test_a_stale_form_overwrites_nobody(tmp_path: Path) -> None:
    path = every_record(tmp_path, now=BEGIN)
    visitor = Visitor(path)
    sent: dict[str, dict[str, list[dict[str, str]]]] = {}
    for page in crawl(visitor, most=250):
        text = visitor.client.get(page).text
        for form in re.findall(r"<form[^>]*method=\"post\".*?</form>", text, re.S):
            action = re.search(r'action="([^"]+)"', form)
            where = html.unescape(action[1]) if action else page.partition("?")[0]
            if not any(part in where for part in FREE):
                sent.setdefault(where, {})[str(sorted(hidden(form).items()))] = filled(form)
    with Store.open(path, author="ben") as store:
        for branch in store.branches():
            words = [
                Operation("MODIFY", e.id, f"Ben: {branch}, {e.id}.")
                for e in store.library(store.tip(branch)).readable
            ]
            if words and branch != "web":  # which is protected
                store.commit(branch, words, message="meanwhile")
    before = others_words(path)
    assert sum(map(len, before.values())) > 30
    overwritten, count = list[str](), 0
    for where, forms in sent.items():
        for fields in (fields for each in list(forms.values())[:4] for fields in each):
            answer = visitor.client.post(
                where, data=fields | {"csrf": visitor.csrf()}, headers=ORIGIN
            )
            assert answer.status_code < 500, (where, fields, answer.text[:1000])
            count += 1
            now = others_words(path)
            lost = [branch for branch, words in before.items() if words - now.get(branch, set())]
            if lost:
                overwritten.append(f"{where} {fields}: {lost}")
            before = now
    assert overwritten == []
    assert count > 40
