"""What must not become an experience: answers, pieces of our own prompts, half sentences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import LESSON, Reply, completion, stage, teachable
from test_controller import decision, planned
from test_reflection import compared, group, said

from tfgrpo.data.problems import Problem
from tfgrpo.domains.base import SHARED_PROMPTS
from tfgrpo.rendering import templates
from tfgrpo.training.label_mentions import mentions, tells
from tfgrpo.training.lesson_check import LessonCheck, given_away

PROBLEM = Problem("QQ-0", "In order QQ-0, Marisol packs 41 boxes of 103. How many in all?", "4177")
PROMPT = "\n".join(text for _, text in templates.load("comparison").parts)
CHECK = LessonCheck((PROBLEM,), (PROMPT,))


@pytest.mark.parametrize(
    "text",
    [
        "For problem QQ-0 the final answer is 4177.",
        "The total comes to 4,177 boxes.",
        "When Marisol packs, multiply and write 4177.0.",
        "In order QQ-0, count the boxes first.",
    ],
)
def test_a_lesson_that_carries_an_answer_or_a_name_is_no_lesson(text: str) -> None:
    assert CHECK(text) is not None


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("12", "The answer is 12 when the crates are full."),
        ("12", "For the crates of Marisol write 12."),
        ("Lake Titicaca", "The highest such lake is lake Titicaca."),
        ("Titicaca", "Look at Titicaca before smaller lakes."),
        ("3.75", "Round to 3.75 at the end."),
        (r"\frac{13}{4177}", r"Write \frac{13}{4177} in lowest terms."),
    ],
)
def test_answers_of_every_kind_are_seen(answer: str, text: str) -> None:
    problem = Problem("p1", "On her way, Marisol asks for it.", answer)
    assert "gives away" in str(LessonCheck((problem,))(text))


@pytest.mark.parametrize(
    "text",
    [
        "To find the working days that a welder works for 4 weeks, multiply the weeks by 5.",
        "For a bill of 12 crates in 4 weeks, add the crates.",
    ],
)
def test_a_lesson_that_quotes_a_problem_with_its_number_is_about_that_problem(text: str) -> None:
    problem = Problem("w", "A welder works for 4 weeks on 12 crates in 4 weeks. How long?", "20")
    assert "say it for any number" in str(LessonCheck((problem,))(text))
    other = Problem("v", "A welder works for 3 weeks on 11 crates. How long?", "15")
    assert LessonCheck((other,))(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "When weeks are turned into working days, multiply the weeks by 5.",
        "A welder works for weeks of 5 days.",
        "Count 4 weeks for a month.",
    ],
)
def test_a_rule_with_a_number_and_a_problems_words_passes(text: str) -> None:
    problem = Problem("w", "A welder works for 4 weeks. How many working days is that?", "20")
    assert LessonCheck((problem,))(text) is None


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("12", "When dozens are turned into rolls, multiply the dozens by 12."),
        ("5", "When two numbers are joined by op, add them and then add one more."),
        ("360", "Angles around a point add up to 360 degrees."),
        ("yes", "When the rule holds, answer yes."),
        ("B", "When two options fit, take the later one."),
        ("4177", LESSON),
        ("", "Carry the ten."),
        ("17", "When half-open, the interval [0, 1) holds its start."),
    ],
)
def test_advice_passes(answer: str, text: str) -> None:
    problem = Problem("line-3", "On her way, Marisol asks for it.", answer)
    assert LessonCheck((problem,), (PROMPT,))(text) is None


@given(st.integers(101, 10**12).filter(lambda n: len(str(n).strip("0")) > 2), st.booleans())
def test_a_long_number_is_seen_however_it_is_written(number: int, commas: bool) -> None:
    problem = Problem("p", "How many?", str(number))
    written = f"{number:,}" if commas else str(number)
    assert LessonCheck((problem,))(f"Multiply first; then you have {written} of them.")
    assert LessonCheck((problem,))(f"Multiply first; then you have {number}1 of them.") is None


@pytest.mark.parametrize(
    "text",
    [
        "similar problems. It also agrees with the right answer",
        "Find out what the right ones did that the wrong ones did not.",
        "is a rule that fits other problems of the kind",
    ],
)
def test_a_piece_of_our_own_prompt_is_no_lesson(text: str) -> None:
    assert "repeats the instructions" in str(CHECK(text))


@pytest.mark.parametrize("text", ["in the final, a", "When adding, carry the", "Add (as", "Add, "])
def test_half_a_sentence_is_no_lesson(text: str) -> None:
    assert "breaks off" in str(CHECK(text))


SHORT = LessonCheck((PROBLEM,), (PROMPT,), max_words=16)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("Carry the ones.", "Carry the ones."),
        (
            "When a PIN is missing, choose the post. It agrees with the right answer, which is "
            "certain even where it is surprising.",
            "When a PIN is missing, choose the post.",
        ),
        (
            "When goods go to the U.S. by sea, allow six weeks, as it is a rule that fits other "
            "problems of the kind.",
            "When goods go to the U.S. by sea, allow six weeks.",
        ),
        (
            "Count both days. Then multiply by the price. The total of 4177 comes from this, and "
            "so does all that is on the bill of such a customer.",
            "Count both days. Then multiply by the price.",
        ),
        (
            "When weeks are counted, multiply them by five because the firm works on five days of "
            "each week and on no other ones.",
            "When weeks are counted, multiply them by five.",
        ),
    ],
)
def test_of_a_long_lesson_the_beginning_counts_that_nothing_is_wrong_with(
    text: str, counts: str
) -> None:
    assert SHORT.accepted(text) == counts


def test_a_long_lesson_without_a_short_beginning_is_left_to_the_controller() -> None:
    text = " ".join(["When goods go abroad by sea or by land and no day was agreed"] * 2)
    assert SHORT.accepted(text) == text


def test_of_a_lesson_without_a_good_beginning_nothing_counts() -> None:
    with pytest.raises(ValueError, match="gives away"):
        SHORT.accepted("The total comes to 4,177 boxes. That is what the boxes hold.")


LABELLED = Problem("m-1", "I never got my PIN.", "get_physical_card")


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("When a PIN is asked for, the label is get_physical_card.", True),
        ("When a PIN is asked for, it is 'Get physical card', not card_linking.", True),
        ("When a PIN is asked for, the label is card_linking.", False),
        ("The wrong attempts are all the same, so they are wrong.", False),
        ("get_physical_card.", False),
        ("When it is late, the label is card_arrival, not get_physical_card.", False),
    ],
)
def test_a_lesson_about_a_label_names_the_right_one(text: str, passes: bool) -> None:
    """A small model takes a wrong attempt for the right one now and then, or says nothing."""
    check = LessonCheck((LABELLED,), shared_answers=True)
    assert (check(text) is None) is passes
    if not passes:
        assert "say when it is right" in str(check(text))
    assert LessonCheck((LABELLED,), shared_answers=True, ground_truth=False)(text) is None


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("The right answer is get_physical_card, not card_linking.", "does not say when"),
        ("The correct answer is get_physical_card, not card_linking", "does not say when"),
        ("It should be get_physical_card or any other option.", "does not say when"),
        ("When a PIN has not come, the answer is get_physical_card, not get_physical_card.", "not"),
        ("When a PIN is late, the answer is get_physical_card, not card_linking.", None),
        ("PIN: get_physical_card.", None),
        ("Kommt die PIN nicht, so ist get_physical_card richtig.", None),
        ("PINが届かないなら get_physical_card。", None),
    ],
)
def test_a_lesson_about_a_label_says_when(text: str, wrong: str | None) -> None:
    """A label without its condition pulls every answer to it."""
    parts = templates.load("comparison", None, SHARED_PROMPTS).parts
    prompt = "\n".join(text for _, text in parts)
    complaint = LessonCheck((LABELLED,), (prompt,), shared_answers=True)(text)
    assert (complaint is None) is (wrong is None)
    if complaint and wrong:
        assert wrong in complaint


@pytest.mark.parametrize(
    ("label", "lesson", "other"),
    [
        ("C++", "When templates are named, the answer is C++.", "When it says so, it is C."),
        ("C", "When pointers are named, the answer is C.", "When classes are named, it is C++."),
        ("C#", "When .NET is named, the answer is C#.", "When there is no runtime, it is C."),
        ("+", "When two heaps become one, the answer is +.", "When some go, it is -."),
        ("退款", "如果顾客想要回钱，答案是退款。", "如果顾客想要回钱，答案是换货。"),
        (
            "возврат",
            "Если просят деньги назад, ответ «Возврат».",
            "Если просят деньги, ответ «обмен».",
        ),
        ("Réclamation", "When a fault is named, it is re\u0301clamation.", "Then it is a reclame."),
        ("คืนเงิน", "ถ้าลูกค้าขอเงินคืนให้ตอบคืนเงินเสมอ", "ถ้าลูกค้าขอเงินคืนให้ตอบเปลี่ยน"),
        (
            "transfer",
            "When money goes out, it is transfer.",
            "When it returns, it is failed_transfer.",
        ),
        (
            "no",
            "When no day is agreed, the answer is no.",
            "When a day is named, say nobody knows.",
        ),
        ("get_physical_card", "It is 'Get  physical-card'.", "It is get_physical_cards."),
        ("3", "With a refund in words, the answer is 3.", "With a refund in words, it is 3.5."),
    ],
)
def test_a_label_is_read_in_any_writing(label: str, lesson: str, other: str) -> None:
    problem = Problem("m-1", "Which is it?", label)
    check = LessonCheck((problem,), shared_answers=True)
    assert check(lesson) is None
    assert "name the right answer" in str(check(other))
    assert mentions(lesson, label)
    assert tells(lesson, label)
    assert not mentions(other, label)


@pytest.mark.parametrize(
    "text",
    [
        "When a parcel is late, it is card_arrival, not transfer.",
        "When a parcel is late, it is card_arrival and not 'transfer'.",
        "When a parcel is late, it is card_arrival, not a transfer, nor the transfer.",
        "When a parcel is late, it is card_arrival rather than transfer.",
        "When a parcel is late, it is card_arrival instead of transfer.",
    ],
)
def test_a_label_that_is_not_right_is_mentioned_and_not_told(text: str) -> None:
    assert mentions(text, "transfer")
    assert not tells(text, "transfer")
    assert tells(text, "card_arrival")


def test_a_lesson_gives_one_of_several_right_labels() -> None:
    meta = {"answers": ["card arrival", "post"]}
    problem = Problem("m-1", "Where is it?", "card_arrival", meta=meta)
    assert len(problem.ground_truths) > 1
    check = LessonCheck((problem,), shared_answers=True)
    assert check("When a letter is late, the answer is post.") is None
    assert check("When a letter is late, the answer is card-arrival.") is None
    assert "name the right answer" in str(check("When a letter is late, it is transfer."))
    assert "an answer alone" in str(check("Post."))


@pytest.mark.parametrize(
    "text",
    [
        "When the price is given for a pair and not for one, divide the number of them by two, "
        "and round up.",
        "When goods are weighed as they come in, take the weight since the last day of the month "
        "and no other.",
        "Because a week has five days here, weeks are multiplied by five and months by twenty "
        "days each time.",
        "If it is cold, which it is in winter, the price of each day is the price of one and a "
        "half.",
    ],
)
def test_half_a_rule_does_not_count_as_a_beginning(text: str) -> None:
    assert SHORT.accepted(text) == text


def lessons(*texts: str) -> str:
    rows = [{"reason": "It is so.", "text": text} for text in texts]
    return json.dumps({"right_did": "", "wrong_did": "", "lessons": rows})


def test_a_lesson_that_gives_the_answer_goes_back_and_is_then_refused_on_record(
    tmp_path: Path,
) -> None:
    def script(request: dict[str, Any]) -> str | Reply:
        if stage(request) == "comparison":
            return lessons("The answer is GOLD-777.", "Carry the ones.")
        return teachable(request)

    found, server = compared(tmp_path, group(1.0, 0.0), script)
    assert [lesson.text for lesson in found.lessons] == ["Carry the ones."]
    (failure,) = found.failures
    assert (failure.stage, failure.problem) == ("comparison", "p1")
    assert "gives away an answer" in failure.reason
    first, second = said(server, "comparison")
    assert "gives away an answer ('GOLD-777')" in second
    assert "gives away" not in first


def test_a_lesson_that_is_mended_when_it_goes_back_counts(tmp_path: Path) -> None:
    def script(request: dict[str, Any]) -> str | Reply:
        if stage(request) == "comparison":
            mended = "cannot be used" in request["messages"][-1]["content"]
            return lessons("Carry the ones." if mended else "in the final, a")
        return teachable(request)

    found, _ = compared(tmp_path, group(1.0, 0.0), script)
    assert [lesson.text for lesson in found.lessons] == ["Carry the ones."]
    assert (found.failures, found.repaired) == ((), False)


def test_a_lesson_that_is_given_twice_is_one(tmp_path: Path) -> None:
    def script(request: dict[str, Any]) -> str | Reply:
        if stage(request) == "comparison":
            return lessons("Carry the ones.", "Carry  the ones.")
        return teachable(request)

    found, _ = compared(tmp_path, group(1.0, 0.0), script)
    assert [lesson.text for lesson in found.lessons] == ["Carry the ones."]


def test_a_lesson_that_goes_on_in_the_words_of_the_prompt_is_cut_and_not_lost(
    tmp_path: Path,
) -> None:
    def script(request: dict[str, Any]) -> str | Reply:
        if stage(request) == "comparison":
            echo = "It is a rule that fits other problems of the kind: no names."
            return lessons(f"When sums pass ten, carry the ones. {echo}")
        return teachable(request)

    found, server = compared(tmp_path, group(1.0, 0.0), script)
    assert [lesson.text for lesson in found.lessons] == ["When sums pass ten, carry the ones."]
    assert (found.failures, len(said(server, "comparison"))) == ((), 1)


def test_no_schema_cuts_a_lesson_off(tmp_path: Path) -> None:
    _, server = compared(tmp_path, group(1.0, 0.0))
    (request,) = [r for r in server.requests if stage(r) == "comparison"]
    schema = request["response_format"]["json_schema"]["schema"]
    lesson = schema["properties"]["lessons"]["items"]["properties"]
    assert lesson == {"reason": {"type": "string"}, "text": {"type": "string"}}
    _, (request,) = planned(tmp_path, [decision("G0", "same")], "Round down.")
    schema = request["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["text"] == {"type": "string"}


def test_of_an_answer_that_was_cut_off_the_last_lesson_does_not_count(tmp_path: Path) -> None:
    whole = lessons("Carry the ones.", "Check the sign before the sum.")

    def script(request: dict[str, Any]) -> str | Reply:
        if stage(request) == "comparison":
            cut = whole[: whole.index(" before the sum")]
            return Reply(completion(cut, finish_reason="length", model=request["model"]))
        return teachable(request)

    found, server = compared(tmp_path, group(1.0, 0.0), script)
    assert [lesson.text for lesson in found.lessons] == ["Carry the ones."]
    assert found.repaired
    assert "cut off" in said(server, "comparison")[1]


def test_a_text_of_the_controller_that_gives_the_answer_never_enters(tmp_path: Path) -> None:
    bad = decision("G0", "refines", "Carry the ten, as in GOLD-777.")
    found, requests = planned(tmp_path, [bad, bad], "Round down.")
    assert [operation.text for operation in found.operations] == ["Round down."]
    assert "gives away an answer" in requests[1]["messages"][-1]["content"]
    (tmp_path / "own").mkdir()
    found, _ = planned(tmp_path / "own", [bad, bad], "Round down to GOLD-777.")
    assert found.operations == ()
    (refusal,) = found.refused
    assert "gives away an answer" in refusal.reason


@pytest.mark.parametrize(
    "text",
    [
        "The correct answer is 14 days, not 972.",
        "The right answer is 8, which means that it is done 8 times in 2 months.",
        "7 days/week \u00d7 2 weeks = 14 days",
        "The correct calculation is 5 * 7 = 35, not 7 * 5.",
        "The right answer is the same as the wrong answer, so there is no difference.",
        "Right attempts were correct.",
        "Example: What is 2 weeks? \u2192 10",
    ],
)
def test_what_small_models_say_of_the_attempts_is_no_lesson(text: str) -> None:
    """As one with the built-in prompts did, of days, weeks and months."""
    check = LessonCheck((Problem("p", "A welder works for 3 weeks. How many days?", "15"),))
    assert check(text) is not None
    with pytest.raises(ValueError, match="it is"):
        check.accepted(text)


@pytest.mark.parametrize(
    ("text", "lesson"),
    [
        ("The lesson is that weeks have five days.", "Weeks have five days."),
        ("The key lesson here is to multiply weeks by 5.", "Multiply weeks by 5."),
        ("Lesson is: multiply weeks by 5.", "Multiply weeks by 5."),
        ("When a lesson is to be given, be brief.", "When a lesson is to be given, be brief."),
        ("1 week = 5 working days.", "1 week = 5 working days."),
        ("To get the correct answer, add 1.", "To get the correct answer, add 1."),
        ("Count both days: last - first + 1.", "Count both days: last - first + 1."),
        ("Round down.", "Round down."),
    ],
)
def test_what_says_what_to_do_is_one(text: str, lesson: str) -> None:
    check = LessonCheck((Problem("p", "A welder works for 3 weeks. How many days?", "15"),))
    assert check.accepted(text) == lesson


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        (
            "When somebody is busy for 8 weeks, count the days.",
            "When somebody is busy for any number of weeks, count the days.",
        ),
        ("Count what is busy for 8 weeks.", None),
        ("What is busy for 8 weeks comes to 40.", None),
    ],
)
def test_a_quantity_of_the_problem_is_any_but_not_beside_its_answer(
    text: str, accepted: str | None
) -> None:
    problem = Problem("p", "A clerk is busy for 8 weeks. How many days?", "40")
    check = LessonCheck((problem,))
    assert check(text) is not None
    if accepted is None:
        with pytest.raises(ValueError, match="for any number"):
            check.accepted(text)
    else:
        assert check.accepted(text) == accepted


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("1234", "It comes to 1,234, so write that."),
        ("1,234", "Take 1,234, not less."),
        ("1234567", "It comes to 1,234,567, always."),
        ("234,5", "Schreibe 234,5 auf."),
        ("1234,56", "Le total est 1234,56 euros."),
        ("1234567", "It is 12,34,567 rupees."),
    ],
)
def test_an_answer_is_known_with_commas_anywhere(answer: str, text: str) -> None:
    assert given_away(text, Problem("p", "How many?", answer)) == answer


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ("When a joiner comes once a week, the total number of visits for any months is 32.", True),
        ("The result of such a bill comes to exactly 32.", True),
        ("The total is 320 at the most.", False),
        ("A roll has 32 sheets; the total counts whole rolls.", False),
        ("Divide the total by 32.", False),
    ],
)
def test_what_a_total_comes_to_is_an_answer(text: str, is_told: bool) -> None:
    answer = given_away(text, Problem("p", "How many visits are that in 8 months?", "32"))
    assert answer == ("32" if is_told else None)


ABOUT_ATTEMPTS = {
    "The correct answer is 'refund' because the problem says so.": True,
    "When a fee is named, the wrong attempts were refund and fraud, which are not right.": True,
    "The right answer is refund when a fee is named.": False,
    "When a fee is named, the answer is refund.": False,
    "When a first attempt to pay fails, the answer is refund.": False,
}


@pytest.mark.parametrize("text", ABOUT_ATTEMPTS)
def test_a_lesson_about_a_label_is_not_about_the_attempts(text: str) -> None:
    problem = Problem("m-1", "A customer asks about money.", "refund")
    complaint = LessonCheck((problem,), shared_answers=True)(text)
    assert (complaint is not None) is ABOUT_ATTEMPTS[text], complaint
    assert "about these attempts" in (complaint or "about these attempts")


def test_no_lesson_speaks_of_attempts() -> None:
    problem = Problem("p-1", "How many days are 3 weeks?", "15")
    check = LessonCheck((problem,))
    assert "about these attempts" in (check("When weeks are given, wrong attempts take 7.") or "")
    assert check("When weeks are given, take 5 days a week.") is None


BILL = Problem("bill-17", "A tailor works for 12 days at 9 euros per hour. How long?", "96")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("Count 1 working-day = 8 hours.", None),
        ("Use 1 half-day = 4 hours.", None),
        ("Count a 5-day week = 40 hours.", None),
        ("Take 20-4 = 16.", "about these attempts"),
        ("Take 20 - 4 = 16.", "about these attempts"),
        ("Take 20 -4 = $16.", "about these attempts"),
        ("12 days are 96 hours.", "gives away an answer"),
        ("Multiply 12 by 8 to get 96.", "gives away an answer"),
        ("If it takes 12 days, then the bill is 96 hours.", "gives away an answer"),
        ("Days of 96 hours are billed from 12 on.", None),
        ("A crate holds 12 jars. The whole load is 96 kilograms at most.", None),
        ("Four days are 96 hours.", None),
        ("When 12 or more come, take 10 percent off.", None),
    ],
)
def test_a_calculation_of_one_problem_is_no_rule(text: str, wrong: str | None) -> None:
    complaint = LessonCheck((BILL,))(text)
    assert (complaint is None) is (wrong is None), complaint
    assert (wrong or "") in (complaint or "")


def test_an_answer_of_one_digit_beside_a_number_may_be_a_rule() -> None:
    problem = Problem("days-3", "A fitter works 40 hours in 5 days. How long is a day?", "8")
    assert LessonCheck((problem,))("In a week of 40 hours, a day is 8 hours.") is None
