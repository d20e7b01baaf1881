"""Right answers in ordinary words: checks, restatements and marks beside them change nothing."""

from __future__ import annotations

import json
from functools import cache

import pytest

from tfgrpo.data.problems import Problem
from tfgrpo.domains import find

domain = cache(find)
BEHIND = (
    "Check: 3 + 39 = 42 ✓",
    "Check: 6 × 7 = 42.",
    "Check: $6 \\times 7 = 42$.",
    "**Check:** 6 * 7 = 42",
    "Check: 42/7 = 6.",
    "Check: 3(42) − 26 = 100",
    "Check: works for 6.",
    "Check with 6.",
    "Check: 100% ✓",
    "The result is 6 × 7 = 42.",
    "The answer is 6 times 7, i.e. 42.",
    "Answer: 4 tens and 2 ones.",
    "结果是 6×7=42。",
    "Ergebnis: 6 · 7 = 42",
    "Le résultat est 6 × 7 = 42.",
    "El resultado es 6 × 7 = 42.",
    "or $6\\cdot 7$.",
    "(or 0.42 m)",
    "The answer is not 43.",
)
RESTATED = (
    ("2, 3", "\\boxed{2, 3}\n\nThe answer is 2 and 3."),
    ("2, 3", "\\boxed{2,3}\n\nThe answer is 2 or 3."),
    ("2, 3", "\\boxed{2, 3}\n\nAnswer: $x=2$ or $x=3$"),
    ("1000", "\\boxed{1000}\n\nAnswer: 10^3"),
    ("1000", "\\boxed{1000}\n\nThe answer is 1 000."),
    (r"2\sqrt{3}", "\\boxed{2\\sqrt{3}}\n\nAnswer: 2√3"),
    (r"2\sqrt{3}", "$\\boxed{2\\sqrt{3}}$ (or about 3.46)"),
    (r"2\sqrt{3}", "$\\boxed{2\\sqrt{3}}$ or approximately 3.46"),
    (r"2\sqrt{3}", "$\\boxed{2\\sqrt{3}}$\n\nThe answer is $2\\sqrt{3} \\approx 3.46$."),
)
ANOTHER = (
    "Correction: 6 × 7 = 43.",
    "The result is 6 × 8 = 48.",
    "The answer is 42 or 43.",
    "The answer is 43 rather than 42.",
    "Answer: 10^3",
    "Answer: 43 apples",
    "or -42",
    "or 43 m",
)


def reward(spec: str, gold: str, response: str, question: str = "?") -> float | None:
    verify = domain(spec).function
    assert verify is not None
    found: float | None = verify(Problem("p", question, gold), response).reward
    return found


@pytest.mark.parametrize("box", [r"\boxed{42}", r"$$\boxed{42}$$"])
def test_a_check_and_a_restatement_are_no_other_number(box: str) -> None:
    refused = [text for text in BEHIND if reward("math", "42", f"It is {box}.\n\n{text}") != 1.0]
    assert refused == []
    given = [text for text in ANOTHER if reward("math", "42", f"It is {box}.\n\n{text}") != 0.0]
    assert given == []


def test_a_value_may_be_written_in_another_way_behind_its_box() -> None:
    assert [pair for pair in RESTATED if reward("math", *pair) != 1.0] == []


def test_the_number_of_a_text_is_no_other_text() -> None:
    for answer in ("12 km", "24 Rue X", "Windows 11"):
        assert reward("exact", answer, f"\\boxed{{{answer}}}\n\nThe answer is {answer}.") == 1.0
    assert reward("exact", "12 km", "\\boxed{12 km}\n\nThe answer is 13 km.") == 0.0
    for labels in (["1 star", "2 stars"], ["0-5 days", "6-10 days"]):
        spec = "choice:" + json.dumps(labels)
        assert reward(spec, labels[1], f"\\boxed{{{labels[1]}}}\n\nLabel: {labels[1]}") == 1.0
        assert reward(spec, labels[1], f"\\boxed{{{labels[1]}}}\n\nLabel: {labels[0]}") == 0.0


BESIDE = (
    *(r"\boxed{42} ✅", r"**\boxed{42}** ✔️", r"$\boxed{42}$ 🎉", r"👉 \boxed{42}", r"➡️ \boxed{42}"),
    *(r"∴ \boxed{42}", r"$∴ \boxed{42}$", r"● \boxed{42}", r"· \boxed{42}", r"★ \boxed{42}"),
    *(r"【\boxed{42}】", r"「\boxed{42}」", r"\boxed{42} ∎", r"\boxed{42} ■", r"\boxed{42}…"),
    *(r"\boxed{42}<|im_end|>", r"\boxed{42}<|eot_id|>", r"\boxed{42}<｜end▁of▁sentence｜>"),
    *(r"अंतिम उत्तर है \boxed{42}", r"উত্তর হলো \boxed{42}", r"จะได้ \boxed{42}", r"விடை \boxed{42}"),
    *(r"సమాధానం \boxed{42}", r"उत्तर: \boxed{42}।", r"الجواب: \boxed{42}،", r"جواب \boxed{42}۔"),
    *(
        r"\hfill \boxed{42}",
        r"$\hfill \boxed{42}$",
        r"\noindent \boxed{42}",
        r"\newline \boxed{42}",
    ),
    *(
        r"\[ \bullet\ \boxed{42} \]",
        r"\[ \star \boxed{42} \]",
        r"\[\Longleftrightarrow \boxed{42}\]",
    ),
    *(r"\[6\cdot7 \longmapsto \boxed{42}\]", r"Answer ⟶ \boxed{42}", r"\boxed{42} ← final answer"),
    *(r"\boxed{42}₫", r"¢\boxed{42}", r"\boxed{42} -- done", r"Step 3 – \boxed{42}"),
    *(r"6*7 \boxed{42}", r"Answer #1 \boxed{42}", r"$\boxed{42} \pmod{100}$"),
    *(r"$\boxed{42} \frac{m}{s}$", r"\boxed{42}\n"),
)
APART = (
    *(r"-\boxed{42} ✅", r"\boxed{42}² ✅", r"½\boxed{42}", r"√\boxed{42}"),
    *(r"❌ \boxed{42}", r"\boxed{42}‰", r"-₫\boxed{42}", r"¬\boxed{42}", r"x ≠ \boxed{42}"),
    *("x =\u0338 \\boxed{42}", r"⌊\boxed{42}⌋.5", r"3 - \boxed{42}", r"6 * \boxed{42}"),
    *(r"$\boxed{42}\frac{x}{y}$", r"$2 \bullet \boxed{42}$", r"2 × \boxed{42} ✅"),
)
"""Marks and signs beside a box that say something."""


def test_marks_beside_a_box_say_nothing() -> None:
    assert [text for text in BESIDE if reward("math", "42", text) != 1.0] == []
    assert [text for text in APART if reward("math", "42", text) == 1.0] == []
    assert reward('choice:["shipping","billing"]', "shipping", r"\boxed{shipping} ✅") == 1.0


def test_a_letter_may_stand_in_a_box_beside_its_option() -> None:
    for text in (r"\boxed{B} – 42 km", r"\boxed{B} - 42", r"$\boxed{\text{B}}\; 42$"):
        assert reward("math", "B", text) == 1.0, text
    for text in (r"$\boxed{B} - 42$", r"$\boxed{B}\; 42$", r"-\boxed{B} - 42"):
        assert reward("math", "B", text) == 0.0, text


OBJECT = '{"vendor": "Elm", "total": 12.5, "tags": {}}'
OTHER = '{"vendor": "ELM", "total": "12.50"}'
MENTIONED = (
    "There are no tags, so `tags` is `{}`.",
    'I followed the format `{"vendor": ..., "total": ...}`.',
    "Note: {vendor: Elm} was read from the header.",
    'Explanation: `{"total": 12.5}` comes from the last line.',
    "Explanation: the set {x : x > 0} is open.",
    "```python\nd = {'vendor': 'Elm'}\n```",
    'If you need an error form: {"error": null}',
    "Let me know if you need anything else! {}",
    '(`null` would be written as {"total": null}.)',
    'This is valid JSON with {"vendor", "total"} fields.',
)
LED = (
    "Input:\n@B\nOutput:\n@A",
    "Draft: @B\n\nFinal: @A",
    "First attempt:\n@B\nCorrected:\n@A",
    "Draft:\n```json\n@B\n```\nCorrected version:\n```json\n@A\n```",
    "Raw: @B\n\nFinal answer:\n```json\n@A\n```",
    "Before normalisation:\n```json\n@B\n```\nAfter normalisation:\n```json\n@A\n```",
    "@B -> @A",
)
NOT_LED = (
    "Option 1:\n@B\nOption 2:\n@A",
    "Version A: @B\nVersion B: @A",
    "First guess:\n@B\nSecond guess:\n@A",
    "@B\nOr:\n@A",
    "If paid:\n@B\nOtherwise:\n@A",
    "```json\n@A\n```\nFinal: `@B`",
    "```json\n@A\n```\nOutput: @B",
    '```json\n@A\n```\nNow corrected with the tax and all that\n```json\n{"vendor": ',
)


def test_an_object_counts_whatever_is_mentioned_behind_it() -> None:
    for first in (f"```json\n{OBJECT}\n```", f"It is:\n\n{OBJECT}", f"<answer>{OBJECT}</answer>"):
        texts = [f"{first}\n\n{text}" for text in MENTIONED]
        assert [text for text in texts if reward("json", OBJECT, text) != 1.0] == []


def test_words_with_a_colon_say_which_of_two_objects_counts() -> None:
    for layouts, right in ((LED, True), (NOT_LED, False)):
        texts = [text.replace("@A", OBJECT).replace("@B", OTHER) for text in layouts]
        assert [text for text in texts if (reward("json", OBJECT, text) == 1.0) != right] == []


DELIVERY = 'choice:["billing","shipping","refund"]'


def test_other_fields_and_braces_do_not_void_a_label() -> None:
    for right in (
        '{"label": "shipping", "urgent": false}',
        '{"label": "shipping", "escalate": "no"}',
        '{"label": "shipping", "secondary_label": "no"}',
        '{"predicted_label": "shipping"}',
        '{"labels": ["shipping"]}',
        '"Where is my order {{Order Number}}?" is about delivery.\n\nLabel: shipping',
        "[Reasoning] The text has {order_id}.\n\nLabel: shipping",
        "\\boxed{shipping}\n\nThe answer is not billing.",
    ):
        assert reward(DELIVERY, "shipping", right) == 1.0, right
    for wrong in (
        '{"label": "shipping", "is_correct": false}',
        '{"rejected_label": "shipping"}',
        '{"labels": ["shipping", "billing"]}',
        '{"label":"shipping"}\n\nbilling',
        '{"label":"shipping"}\n\nNot sure, maybe billing.',
        '{"label":"shipping"}\nI think it is billing.',
    ):
        assert reward(DELIVERY, "shipping", wrong) == 0.0, wrong


def test_a_remark_before_a_text_is_no_other_text() -> None:
    for before in (
        "The answer is obvious!\n\n",
        "The answer is not Lyon but\n",
        "Result: found it\n\n",
        "Answer: Lyon\nWait, that is wrong.\n\n",
    ):
        assert reward("exact", "Paris", f"{before}Paris") == 1.0, before
    assert reward("exact", "Paris", "Answer: Lyon\n\nParis") == 0.0
    for text in ("(Paris)", "[Paris]", "__Paris__", "Answer: <Paris>"):
        assert reward("exact", "Paris", text) == 1.0, text
    for text in ("# 1912", "• 1912"):
        assert reward("exact", "1912", text) == 1.0, text
