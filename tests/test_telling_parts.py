"""Fields that right attempts alone have right: counted, told, and named by lessons."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_reflection import compared, said

from tfgrpo.data.problems import Problem
from tfgrpo.rollout.attempt import Group, Rollout
from tfgrpo.training.telling_parts import (
    LONGEST,
    TellingPart,
    is_about_form,
    is_same_form,
    parts_words,
    telling_parts,
)

GOLD = {"customer": "Lea Blum", "month": "May", "paid": False, "to": {"town": "Ulm"}}
ORDER = Problem(
    "o-1", "Lea Blum of Ulm orders a desk on 9 May; the bill is open.", json.dumps(GOLD)
)


def attempt(sample: int, **other: Any) -> Rollout:
    """Returns an attempt at the order that differs from the ground truth in some fields."""
    text = json.dumps({**GOLD, **other})
    wrong = {name: value for name, value in other.items() if value != GOLD[name]}
    details: dict[str, Any] = dict.fromkeys(("customer", "month", "paid", "to.town"), "right")
    details |= {n: f"{json.dumps(v)} is not {json.dumps(GOLD[n])}" for n, v in wrong.items()}
    reward = 1 - len(wrong) / 4
    return Rollout(ORDER, sample, text, "answered", reward, text, "", (f"{sample}",), details)


def parts_of(winners: list[Rollout], losers: list[Rollout]) -> dict[str, tuple[Any, Any]]:
    return {part.name: (part.right, part.wrong) for part in telling_parts(ORDER, winners, losers)}


def test_fields_that_right_attempts_alone_have_right() -> None:
    right, day = attempt(0), attempt(1, month="9 May")
    both = attempt(2, month="9 May", paid="open")
    assert parts_of([right], [day]) == {"month": ("May", "9 May")}
    assert parts_of([right], [both, day]) == {
        "month": ("May", "9 May"),
        "paid": (False, "open"),
    }
    assert parts_of([day], [both]) == {"paid": (False, "open")}, "the better one is not all right"
    assert parts_of([right, day], [day]) == {}, "half of the right ones"
    other = attempt(3, month="2026-05")
    assert parts_of([right], [day, other, other]) == {"month": ("May", "2026-05")}
    unread = Rollout(ORDER, 4, "May", "answered", 0.0, None, "no JSON")
    assert parts_of([right], [unread]) == {}, "what it lacks is an object"
    assert parts_of([right], [unread, day, day]) == {"month": ("May", "9 May")}
    assert parts_of([], [day]) == parts_of([right], []) == {}


def test_of_several_right_objects_that_of_the_winners_is_told() -> None:
    def other(sample: int, month: str, right: bool) -> Rollout:
        verdict = {"month": "right" if right else "no"}
        return replace(attempt(sample, month=month), reward=float(right), details=verdict)

    winners = [other(n, "Mai", True) for n in (0, 1)]
    assert parts_of(winners, [other(2, "9 Mai", False)]) == {"month": ("Mai", "9 Mai")}


def test_what_winners_have_wrong_themselves_is_not_told_as_right() -> None:
    right = [attempt(n, month=text) for n, text in enumerate(("MAY", "may", "May."))]
    right = [replace(one, details={**one.details, "month": "right"}) for one in right]
    wrong = [attempt(n, month="9 May") for n in (3, 4)]
    told, _ = parts_of([*right, *wrong], [attempt(5, month="5"), attempt(6, month="5")])["month"]
    assert told in ("MAY", "may", "May.")


def test_of_two_values_that_are_right_most_winners_decide() -> None:
    other = json.dumps({**GOLD, "month": "Mai"})
    problem = replace(ORDER, meta={"answers": [ORDER.answer, other]})
    right = {**attempt(0).details, "month": "right"}
    winners = [replace(attempt(n, month="Mai"), reward=1.0, details=right) for n in (0, 1)]
    (part,) = telling_parts(problem, [attempt(2), *winners], [attempt(3, month="9 Mai")])
    assert (part.right, part.wrong) == ("Mai", "9 Mai")


@pytest.mark.parametrize("first", ["{}", "[]", '{"customer": "Lea Blum"}'])
def test_a_field_may_be_in_a_later_one_of_the_right_objects(first: str) -> None:
    problem = replace(ORDER, answer=first, meta={"answers": [first, ORDER.answer]})
    (part,) = telling_parts(problem, [attempt(0)], [attempt(1, month="9 May")])
    assert part == ("month", "May", "9 May")


@pytest.mark.parametrize("answer", ["58", "[1]", "", "{", "[" * 5000])
def test_other_answers_have_no_fields(answer: str) -> None:
    problem = Problem("p", "How many?", answer)
    assert telling_parts(problem, [attempt(0)], [attempt(1, month="9 May")]) == ()


LESSONS: list[tuple[Any, Any, str | None]] = [
    ("May", "9 May", 'When it says "9 May", month is "May" alone.'),
    ("Blum", "Lea Blum", 'When it says "Lea Blum", month is "Blum" alone.'),
    (False, "open", 'When month could be "open", write false.'),
    (380, "380 euros", 'month is a number alone, as 380 for "380 euros".'),
    (1380, "1,380 euros", 'month is a number alone, as 1380 for "1,380 euros".'),
    (2.5, "2.50 m", 'month is a number alone, as 2.5 for "2.50 m".'),
    (202, "202", 'month is a number alone, as 202 for "202".'),
    (202.0, "202 euros", 'month is a number alone, as 202 for "202 euros".'),
    (5, "3-5 days", 'month is a number alone, as 5 for "3-5 days".'),
    (-5, "-5 euros", 'month is a number alone, as -5 for "-5 euros".'),
    (-5, "5 euros", None),
    (5, "-5 euros", None),
    (5, "\u22125 euros", None),
    (38, "1,38 euros", None),
    (38, "1.38 euros", None),
    (1e16, "10 m", None),
    ("202", "202 euros", 'When it says "202 euros", month is "202" alone.'),
    ("89073", "89073 Ulm", 'When it says "89073 Ulm", month is "89073" alone.'),
    ("05", "2026-05-09", 'When it says "2026-05-09", month is "05" alone.'),
    ("202", "1,202 euros", None),
    ("38", "1.38 euros", None),
    (202, "182 euros", None),
    (202, "not stated", None),
    (True, "182 euros", 'When month could be "182 euros", write true.'),
    ("May", "Mayor", None),
    ("May", "June", None),
    (False, True, None),
    (380, 360, None),
    ("May", None, None),
    (False, "", None),
    (["May"], "9 May", None),
    ("May", "9 May" + " and more" * 20, None),
    ("Ümlaut", "der Ümlaut", 'When it says "der Ümlaut", month is "Ümlaut" alone.'),
]


@pytest.mark.parametrize("name", ["month", "Invoice month", "to.town"])
@pytest.mark.parametrize(("right", "wrong", "other"), [("May", "9 May", "June"), (380, "380 m", 7)])
def test_a_form_is_one_whatever_the_value(name: str, right: Any, wrong: str, other: Any) -> None:
    text = TellingPart(name, right, wrong).lesson() or ""
    again = TellingPart(name, other, f"{other} or so").lesson() or ""
    assert is_about_form(text)
    assert is_same_form(again, text)
    assert not is_same_form(again, TellingPart("paid", right, wrong).lesson() or "")


@pytest.mark.parametrize("wrong", ["380 m", "3,800 m"])
def test_a_number_alone_is_known_in_the_words_of_older_libraries(wrong: str) -> None:
    old = 'When it says "7 m", month is 7 alone.'
    text = TellingPart("month", int(wrong[:-2].replace(",", "")), wrong).lesson() or ""
    assert is_about_form(old)
    assert is_same_form(text, old)
    assert not is_same_form(text, 'When it says "9 May", month is "May" alone.')


def test_a_text_for_true_is_one_form_in_any_case() -> None:
    one, other, apart = (
        TellingPart("paid", True, text).lesson() or "" for text in ("paid", "Paid", "settled")
    )
    assert is_same_form(one, other)
    assert not is_same_form(one, apart)


def test_true_and_false_are_two_forms() -> None:
    yes, no = (TellingPart("paid", right, "open").lesson() or "" for right in (True, False))
    assert is_about_form(yes)
    assert not is_same_form(yes, no)


@pytest.mark.parametrize(("right", "wrong", "expected"), LESSONS)
def test_what_differs_in_its_form_is_a_lesson(right: Any, wrong: Any, expected: str | None) -> None:
    assert TellingPart("month", right, wrong).lesson() == expected


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("month", "Give the month alone.", True),
        ("month", "Give each Month alone.", True),
        ("month", "Months are names.", True),
        ("month", "Give it monthly.", False),
        ("pieces", "Count each piece once.", True),
        ("total", "Totals are numbers.", True),
        ("tax", "Taxes are numbers.", True),
        ("gas", "Give it in ga.", False),
        ("dueDate", "Write the due date as a number.", True),
        ("due_date", "Write dueDate as a number.", True),
        ("currency", "Give currencies in capitals.", True),
        ("cities", "Name the city alone.", True),
        ("address", "Addresses are in one line.", True),
        ("statuses", "A status is one word.", True),
        ("email", "Write the e-mail in small letters.", True),
        ("postcode", "A post code has five digits.", True),
        ("Adresse", "Adressen stehen in einer Zeile.", True),
        ("Дата", "Даты пишутся числами.", True),
        ("total", "Give it totally.", False),
        ("date", "Keep it up to standard.", False),
        ("delivery_day", "The delivery day is a number.", True),
        ("to.town", "Write the town in capitals.", True),
        ("to.town", "Write where it goes.", False),
        ("größe", "Die Größe ist eine Zahl.", True),
        ("#", "Count them.", True),
        ("月", "月は名前だけを書く。", True),
        ("deliveryDay", "Write deliveryDay as a number.", True),
        ("notes", "Do not shorten it.", False),
        ("notes", "A note is one sentence.", True),
        ("i", "It is in words.", False),
        ("plan", "Plants are green.", False),
        ("Monat", "Monate sind Namen.", True),
        ("prezzo", "I prezzi sono numeri.", True),
        ("Betrag", "Beträge sind Zahlen.", True),
        ("Betrag", "Betrachte alles.", False),
        ("name", "When a day is named, copy it.", False),
        ("número", "Los numeros van sin puntos.", True),
        ("gro\u0308\u00dfe", "Die Größe ist eine Zahl.", True),
        ("ИНН", "Пишите ИНН без пробелов.", True),
        ("ИНН", "Длинный текст не нужен.", False),
        ("금액", "금액은 숫자만 쓴다.", True),
    ],
)
def test_whether_a_text_names_a_field(name: str, text: str, named: bool) -> None:
    assert TellingPart(name, "May", "9 May").is_named_in(text) is named


def contrast(text: str) -> str:
    lesson = {"reason": "It is right.", "text": text}
    return json.dumps({"right_did": "a", "wrong_did": "b", "lessons": [lesson]})


def test_a_comparison_is_told_of_them_and_a_lesson_names_one(tmp_path: Path) -> None:
    group = Group(ORDER, (attempt(0), attempt(1, month="9 May")))
    good = "For the month of an order, give its name alone."
    answers = iter([contrast("When orders come, thank the customer."), contrast(good)])
    advantage, server = compared(tmp_path, group, lambda _: next(answers), summarise_over=500)
    assert [lesson.text for lesson in advantage.lessons] == [good]
    first, second = said(server, "comparison")
    assert 'Right in right attempts alone: month ("May", not "9 May")' in first
    assert "75 % right" in first
    assert "reward" not in first.rpartition("Known already")[2]
    assert "it says nothing of month; say what is written there, and when" in second


def test_where_a_model_has_no_lesson_the_form_is_one(tmp_path: Path) -> None:
    group = Group(ORDER, (attempt(0), attempt(1, month="9 May", paid="open")))
    bad = contrast("The month of this order is May.")
    advantage, server = compared(tmp_path, group, lambda _: bad, summarise_over=500)
    assert [lesson.text for lesson in advantage.lessons] == [
        'When it says "9 May", month is "May" alone.',
        'When paid could be "open", write false.',
    ]
    assert "it is about one problem ('May'); say it for any" in said(server, "comparison")[1]
    assert {lesson.reason for lesson in advantage.lessons} == {
        "Right attempts alone have month right.",
        "Right attempts alone have paid right.",
    }


def test_a_rule_may_say_a_value_that_differs_otherwise(tmp_path: Path) -> None:
    group = Group(ORDER, (attempt(0), attempt(1, month="June")))
    text = "When a day in May is named, the month is May."
    advantage, server = compared(tmp_path, group, lambda _: contrast(text), summarise_over=500)
    assert [lesson.text for lesson in advantage.lessons] == [text]
    assert len(said(server, "comparison")) == 1


def test_without_the_ground_truth_nothing_is_told(tmp_path: Path) -> None:
    group = Group(ORDER, (attempt(0), attempt(1, month="9 May")))
    text = "When orders come, thank the customer."
    advantage, server = compared(
        tmp_path, group, lambda _: contrast(text), summarise_over=500, ground_truth=False
    )
    assert [lesson.text for lesson in advantage.lessons] == [text]
    assert "Right in right attempts alone" not in said(server, "comparison")[0]


def test_what_is_told_is_short() -> None:
    part = TellingPart("month", "May " * 500, "June " * 500)
    assert len(parts_words([part] * 4)) <= 4 * (LONGEST + 2) + 40
    assert parts_words([]) == ""
