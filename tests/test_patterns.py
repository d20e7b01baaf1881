"""What is taken out of words before they are kept, wherever in a body it stands."""

from __future__ import annotations

import json

import pytest

from tfgrpo.proxy.withheld_words import Finder, without_secrets
from tfgrpo.store.records import REDACTED

SECRETS = (
    "sk-proj-AbCdEfGhIjKlMnOpQrStUv",
    "ghp_abcdefghijklmnopqrstuv0123",
    "eyJhbGciOiJIUzI1.eyJzdWIiOiIx.c2ln",
    "4111 1111 1111 1111",
    "DE89370400440532013000",
    "ann@example.com",
    "Zoë Müller",
)
BEFORE = ("", "key: ", "\n", "\t", "my .env:\n", "\r\n", "\f", "\u2028", '"', "\\", "/", "é", "号")
AFTER = ("", "\n", " ", "号", '"')
PATTERN = Finder(("Zoë Müller",))


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "cut off"])
@pytest.mark.parametrize("nested", [False, True], ids=["a text", "JSON in a text"])
@pytest.mark.parametrize("ascii", [True, False], ids=["escapes", "letters"])
def test_no_secret_is_left_wherever_it_stands(
    secret: str, whole: bool, nested: bool, ascii: bool
) -> None:
    for before in BEFORE:
        for after in AFTER:
            body = json.dumps({"content": f"{before}{secret}{after}"}, ensure_ascii=ascii)
            if nested:
                body = json.dumps({"n": 1, "arguments": body}, ensure_ascii=ascii)
            given = body if whole else body[:-1]
            kept = without_secrets(given, PATTERN)
            assert REDACTED in kept, (before, after)
            for form in (secret, json.dumps(secret)[1:-1], json.dumps(json.dumps(secret))[3:-3]):
                assert form not in kept, (before, after)
            if whole:
                json.loads(kept)


@pytest.mark.parametrize(
    "text",
    [
        '{"a":  1.50, "b": "x\\u00e9"}',
        '{"speed": 123.4567890123456, "n": null}',
        "No secret\\n in [G1] this.",
        "[G1] {x}\\n",
        '{"cut": "off\\n',
        "[" * 5000,
        "",
    ],
)
def test_what_holds_none_stays_as_it_is_to_the_byte(text: str) -> None:
    assert without_secrets(text, PATTERN) == text


def test_a_long_whole_number_becomes_a_string() -> None:
    assert json.loads(without_secrets('{"card": 4111111111111111}', PATTERN)) == {"card": REDACTED}
    assert without_secrets("4111111111111111", PATTERN) == json.dumps(REDACTED)
