"""Responses to problems whose answers are labels or texts, with the reward of each, by kind."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Case(NamedTuple):
    """A domain, a ground truth, a response to it, and its reward."""

    spec: str
    gold: str
    response: str
    reward: float


def choice(labels: Sequence[str]) -> str:
    """Returns the domain of some labels."""
    return "choice:" + json.dumps(labels, ensure_ascii=False)


LAYOUTS = (
    "{}",
    "Label: {}",
    "**Label: {}**",
    "Label: **{}**",
    "Label: `{}`",
    'Label: "{}"',
    "It is so.\n\nLabel: {}",
    "\\boxed{{{}}}",
    "<answer>{}</answer>",
    '{{"label": "{}"}}',
)
"""Where a label may stand."""
SIGNED: tuple[tuple[list[str], dict[str, str | None]], ...] = (
    (["-1", "0", "+1"], {"-1": "-1", "−1": "-1", "1": "+1", "+1": "+1", "0": "0", "2": None}),
    (["-1", "0", "1"], {"-1": "-1", "−1": "-1", "1": "1", "+1": "1", "- 1": None, "* 1": None}),
    (["-5", "0", "-10"], {"5": None, "-5": "-5", "10": None, "–10": "-10"}),
    (["O-", "A-", "B+"], {"O": None, "O-": "O-", "o-": "O-", "O−": "O-", "A": None, "B": None}),
    (["HIV-", "HIV+"], {"HIV": None, "HIV-": "HIV-", "hiv+": "HIV+", "HIV−": "HIV-"}),
    (["A-", "B-", "C"], {"A": None, "A-": "A-", "B": None, "C": "C"}),
    (["C", "C++", "C#"], {"C": "C", "C++": "C++", "c#": "C#"}),
    (
        ["<5", "5", ">5"],
        {"5": "5", ">5": ">5", "> 5": ">5", "<5": "<5", "< 5": "<5", "- 5": None, "<5>": None},
    ),
    (["<1", "1-5", ">5"], {">5": ">5", "> 5": ">5", "1-5": "1-5", "1–5": "1-5", "1 5": None}),
    (["1-2", "12"], {"1-2": "1-2", "1 2": None, "12": "12", "1_2": None}),
    (["0-5", "5-10"], {"0-5": "0-5", "0 5": None, "05": None, "5–10": "5-10"}),
    (["1. Liga", "2. Liga", "Liga"], {"1. Liga": "1. Liga", "Liga": "Liga", "3. Liga": None}),
    (["init", "__init__"], {"init": "init", "__init__": "__init__"}),
    (["(a)", "a"], {"(a)": "(a)", "a": "a"}),
    (["card_lost", "no-refund"], {"card lost": "card_lost", "Card-Lost": "card_lost"}),
    (["card_lost", "no-refund"], {"no refund": "no-refund", "NO_REFUND": "no-refund"}),
    (["covid-19", "flu"], {"covid 19": "covid-19", "Covid_19": "covid-19"}),
)
"""Labels that differ by a sign, and which of them a text is."""
BULLETS = ("- {}", "* {}", "1. {}", "- **{}**", "[{}]", "({})", "<{}>", "- Label: {}")
"""Marks that say nothing where no label differs by them."""


def signed_labels() -> Iterator[Case]:
    """Yields labels that differ by a sign, each text in every place of a label."""
    for labels, texts in SIGNED:
        for text, label in texts.items():
            for layout in LAYOUTS:
                if text[:2] not in ("- ", "* ", "> ", "<5") or layout == "{}":
                    for gold in labels:
                        yield Case(choice(labels), gold, layout.format(text), float(gold == label))
    for labels in (["1", "2", "3"], ["refund", "damage"]):
        for layout in BULLETS:
            yield Case(choice(labels), labels[0], layout.format(labels[0]), 1.0)
            yield Case(choice(labels), labels[1], layout.format(labels[0]), 0.0)
    signed = choice(["-1", "0", "+1"])
    yield Case(signed, "-1", '{"label": 1}', 0.0)
    yield Case(signed, "+1", '{"label": 1}', 1.0)
    yield Case(signed, "-1", '{"label": -1}', 1.0)


def signed_texts() -> Iterator[Case]:
    """Yields texts that a mark before them or around them makes other ones."""
    for text in ("5", "42", "3.5", "1912", "007", "$5", ".5"):
        for layout in ("- {}", "So it is:\n- {}", "**- {}**", "> {}", "The value is\n> {}", "* {}"):
            yield Case("exact", text, layout.format(text), 0.0)
        for layout in (
            "{}",
            "**{}**",
            "Answer: {}",
            "`{}`",
            '"{}"',
            "- Answer: {}",
            "# Answer: {}",
        ):
            yield Case("exact", text, layout.format(text), 1.0)
    for text in ("Dezember", "Bundesliga", "Weltkrieg", "FC Köln"):
        for layout in ("1. {}", "24. {}", "Der Tag ist:\n2. {}", "3) {}"):
            yield Case("exact", text, layout.format(text), 0.0)
            gold = layout.format(text).splitlines()[-1]
            yield Case("exact", gold, layout.format(text), 1.0)
    for text in ("init", "main", "x", "str", "div"):
        for layout in ("__{}__", "[{}]", "({})", "<{}>", "`<{}>`", "**[{}]**"):
            yield Case("exact", text, f"Answer: {layout.format(text)}", 0.0)
            gold = layout.format(text).strip("`*")
            yield Case("exact", gold, f"Answer: {layout.format(text)}", 1.0)
    for text in ("Paris", "Marie Curie", "blue whale"):
        for layout in ("- {}", "* {}", "- **{}**", '- "{}"', "# {}", "**{}**", "- Answer: {}"):
            yield Case("exact", text, layout.format(text), 1.0)
    yield Case("exact", "Marie Curie", "__Marie Curie__", 1.0)


OTHERS = (
    *(("BBB", "BBB-"), ("AAA", "AAA-"), ("NO3", "NO3-"), ("SO4", "SO4^2-"), ("HIV", "HIV-")),
    *(("(0,1)", "[0,1]"), ("(3, 7)", "[3, 7]"), ("[0;1)", "(0;1)"), ("(a,b)", "[a,b]")),
    *(("1:2", "1 2"), ("10:30", "10 30"), ("f", "f'"), ("f'", "f''"), ("x", "x′")),
    *(("1/x", "1 x"), ("x/2", "x 2"), ("x/y", "x y"), ("10-12", "10 12"), ("2-1", "2 1")),
    *(("@home", "home"), ("a@b", "a b"), ("a_1", "a 1"), ("1;2", "1.2"), ("3 < 5", "3 5")),
)
"""Texts that differ by a sign, whatever punctuation says."""
ALIKE = (
    *(("(Paris)", "[Paris]"), ("Paris, France", "Paris (France)"), ("'x'", "x"), ("'f'", "f")),
    *(("well-known", "well known"), ("and/or", "and or"), ("AB-12", "AB 12"), ("(42)", "42")),
    *(("yes: now", "yes now"), ("Smith's", "Smith s"), ("the (red) one", "the red one")),
    *(("snake_case", "snake case"), ("Paris - London", "Paris London"), ("(a, bee)", "a bee")),
)
"""Texts that differ by punctuation alone."""


def ignored_punctuation() -> Iterator[Case]:
    """Yields texts that are compared without their punctuation."""
    for more in ("", ",case=ignore"):
        spec = f"exact:punctuation=ignore{more}"
        for pairs, reward in ((OTHERS, 0.0), (ALIKE, 1.0)):
            for one, other in pairs:
                yield Case(spec, one, f"Answer: {other}", reward)
                yield Case(spec, other, f"Answer: {one}", reward)
        yield from (Case(spec, one, f"Answer: {one}", 1.0) for one, _ in OTHERS)
