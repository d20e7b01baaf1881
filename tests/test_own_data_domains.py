"""Domains for own data: labels, exact texts, JSON. No wrong answer is ever called right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Cli
from scripted import ScriptedEndpoint, comparison_of, stage

from tfgrpo.data.problems import Problem
from tfgrpo.domains import DomainError, Verdict, find
from tfgrpo.domains.prompt_library import PromptLibrary
from tfgrpo.domains.registry import with_data
from tfgrpo.store import Store

LABELS = ["card_arrival", "card_linking", "transfer", "transfer_timing", "reverted_payment?", "no"]
CHOICE = find("choice:" + json.dumps(LABELS))


def judged(spec: str, gold: str, response: str) -> Verdict:
    verify = find(spec).function
    assert verify is not None
    return verify(Problem("1", "?", gold), response)


RIGHT = (
    "card_arrival",
    "Card arrival.",
    "Label: card_arrival",
    "**Label:** card-arrival",
    "It waits for a card.\n\nLabel: `card_arrival`",
    "It waits for a card. **Label:** card_arrival",
    "So the final answer is: **card_arrival**.",
    r"\boxed{\text{card\_arrival}}",
    "<answer>card_arrival</answer>",
    '{"label": "card_arrival", "why": "it waits"}',
    'Here:\n```json\n{"category": "card_arrival"}\n```',
    "<think>card_linking?</think>\ncard_arrival",
    "Not card_linking, as nothing is linked.\ncard_arrival",
)
WRONG = (
    "",
    "card_linking",
    "not card_arrival",
    "card_arrival?",
    "card_arrivals",
    "It is not card_arrival",
    "It could be card_arrival, I think",
    "card_arrival or card_linking",
    "card_linking\ncard_arrival",
    "Label: card_linking\nLabel: card_arrival",
    "card_arrival\nThat is wrong.",
    "These are wrong:\ncard_arrival",
    "It waits. Wrong label: card_arrival",
    "Label: card_linking. Label: card_arrival",
    "It waits. Label: card_arrival or card_linking",
    "<think>card_arrival",
    r"\boxed{card_linking} and \boxed{card_arrival}",
    r"\boxed{card_arrival}. That is wrong.",
    "\\boxed{card_arrival}\nLabel: card_linking",
    '{"label": "card_linking"}',
    '{"label": "card_arrival", "category": "card_linking"}',
    '{"label": "card_linking", "label": "card_arrival"}',
    '{"label": ["card_arrival", "card_linking"]}',
    '{"not": "card_linking", "but": "card_arrival"}',
)


@pytest.mark.parametrize("response", RIGHT)
def test_a_label_that_is_given_is_read(response: str) -> None:
    verdict = CHOICE.function(Problem("1", "?", "card_arrival"), response)  # type: ignore[misc]
    assert (verdict.reward, verdict.answer) == (1.0, "card_arrival"), verdict


@pytest.mark.parametrize("response", WRONG)
def test_no_wrong_label_is_called_right(response: str) -> None:
    verdict = CHOICE.function(Problem("1", "?", "card_arrival"), response)  # type: ignore[misc]
    assert verdict.reward == 0.0, verdict
    assert ":" in verdict.reason


def test_labels_that_differ_in_case_alone_are_apart() -> None:
    spec = 'choice:["US","us","Uk"]'
    assert judged(spec, "US", "US").reward == 1.0
    assert judged(spec, "US", "us").reward == 0.0
    assert judged(spec, "Uk", "uk").reward == 1.0


def test_a_label_whose_name_ends_with_a_mark_is_read_without_it() -> None:
    verdict = CHOICE.function(Problem("1", "?", "reverted_payment?"), "Reverted payment.")  # type: ignore[misc]
    assert verdict.answer == "reverted_payment?"


SIGNS = [
    ("-5", "5", 0),
    ("-5", "−5", 1),
    ("-$5", "$5", 0),
    ("C++", "C", 0),
    ("C#", "C", 0),
    ("C#", "c#.", 1),
    ("$5", "€5", 0),
    ("$5", "5", 0),
    ("5%", "5", 0),
    ("A+", "A", 0),
    ("A-", "A", 0),
    ("A-", "A+", 0),
    ("A*", "A", 0),
    ("**Paris** now", "Paris, now!", 1),
    ("1/2", "1 2", 0),
    ("3.5", "3 5", 0),
    (".5", "5", 0),
    ("x^2", "x 2", 0),
    ("1, 2, 3", "1; 2; 3.", 1),
    ("Dr. Smith's", "dr smith s", 1),
    ("well-known", "well known", 1),
    ("#1", "1", 1),
    ("“Paris” (France)", "paris france", 1),
    ("a | b", "a b", 1),
    ("- 5", "5", 0),
    ("− 5", "-5", 1),
    ("5!", "5", 0),
    ("5", "5!", 0),
    ("-√2", "√2", 0),
    ("-π", "π", 0),
    ("-x", "x", 0),
    ("-(5)", "5", 0),
    ("-∞", "∞", 0),
    ("|5|", "5", 0),
    ("~5", "5", 0),
    ("50‰", "50", 0),
    ("2½", "21/2", 0),
    ("10⁶", "106", 0),
    ("(x)^2", "(x)2", 0),
    ("3,5", "3 5", 0),
    ("3,5", "35", 0),
    ("12,000", "12000", 1),
    ("1, 2, 3", "1,2,3", 1),
    ("Paris - London", "Paris, London!", 1),
]


def test_a_ground_truth_that_is_no_label_is_refused() -> None:
    assert CHOICE.check is not None
    assert "6 labels" in str(CHOICE.check(Problem("1", "?", "other")))
    assert CHOICE.check(Problem("1", "?", "no")) is None


def test_labels_come_from_the_data_a_file_or_a_list(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("no\nyes\n\n")
    listed = find('choice:["no","yes"]')
    assert find(f"choice:{tmp_path / 'labels.txt'}").identity == listed.identity
    rows = (Problem("1", "?", "yes"), Problem("2", "?", "no"))
    fitted, spec = with_data(find("choice"), "choice", rows)
    assert spec == 'choice:["no", "yes"]'
    assert fitted.identity == listed.identity
    from_file = f"choice:{tmp_path / 'labels.txt'}"
    assert with_data(find(from_file), from_file, rows[:1])[1] == spec  # a record needs no file
    assert with_data(find("math"), "math", rows) == (find("math"), "math")
    for bad in ("choice:none.txt", "choice:[]", "choice:[1]", "choice:[no"):
        with pytest.raises(DomainError):
            find(bad)


QUOTED = (
    "«Paris»",
    "« Paris »",
    "»Paris«",
    "„Paris“",
    "„Paris”",
    "‘Paris’",
    "‚Paris‘",
    "「Paris」",
    "『Paris』",
    "‹Paris›",
)


@pytest.mark.parametrize(
    ("spec", "gold", "response", "reward"),
    [
        ("exact", "Paris", "I think.\nAnswer: **Paris**.", 1),
        ("exact", "Paris", "paris", 0),
        ("exact:case=ignore", "Paris", "PARIS", 1),
        ("exact", "AB-12", "AB 12", 0),
        ("exact:punctuation=ignore", "AB-12", "AB 12", 1),
        ("exact:punctuation=ignore,space=ignore", "AB-12", "AB12", 1),
        *[
            (f"exact:punctuation=ignore,case=ignore{more}", one, other, reward)
            for more in ("", ",space=ignore")
            for one, other, reward in SIGNS
        ],
        ("exact", "café", "cafe", 0),
        ("exact:accents=ignore", "café", "cafe", 1),
        ("exact", "Paris", "Paris or London", 0),
        ("exact", "Paris", "Not:\nParis", 0),
        ("exact", "Paris", "\\boxed{Paris}\nAnswer: London", 0),
        ("exact", "Paris", "Answer: Lyon\nAnswer: Paris", 0),
        ("exact", "Paris", "Answer: Paris\n\nAnswer: Paris.", 1),
        ("exact", "Paris", "Antwort: Lyon\nDoch nicht.\nAntwort: Paris", 1),
        ("exact", "Paris", "1. Lyon\n2. Paris", 0),
        ("exact", "Paris", "- Lyon\n- **Paris**", 0),
        ("exact", "Paris", "- It is a capital.\nAnswer: Paris", 1),
        ("exact", "Paris", "1. It is a capital.\n2. Answer: Paris", 1),
        *(("exact", "Paris", f"Answer: {text}", 1) for text in QUOTED),
        ("exact", "Paris", "Answer: «Paris» or «Lyon»", 0),
        ("exact", "Paris", "Antwort: Paris", 1),
        ("exact", "Paris", "Die richtige Antwort ist Paris.", 1),
        ("exact", "Paris", "Réponse : Paris", 1),
        ("exact", "Paris", "La respuesta es Paris", 1),
        ("exact", "Paris", "Ответ: Paris", 1),
        ("exact", "Paris", "答案：Paris", 1),
        ("exact", "Paris", "答案是Paris", 1),
        ("exact", "Paris", "答えは Paris", 1),
        ("exact", "Paris", "정답: Paris", 1),
        ("exact", "Paris", "الجواب: Paris", 1),
        ("exact", "Paris", "Falsche Antwort: Paris", 0),
        ("exact", "Paris", "Die Antwort ist nicht:\nParis", 0),
        ("exact", "Paris", "La respuesta no es:\nParis", 0),
        ("exact", "Paris", "Ausgeschlossen:\nParis", 0),
        ("exact", "Paris", "答案不是：\nParis", 0),
        ("exact", "Paris", "I ruled out:\nParis", 0),
        ("exact", "Paris", "<answer>Paris</answer>. That is wrong.", 0),
        ("exact", "Paris", "<answer>Lyon</answer> or <answer>Paris</answer>", 0),
        ("exact", "Paris", r"\boxed{Lyon} oder \boxed{Paris}", 0),
        ("exact", "Paris", r"\boxed{Paris}. Das ist falsch.", 0),
        ("exact", "one\ntwo", "one\ntwo", 1),
        ("exact", "one\ntwo", "two", 0),
        ("exact:read=response", "Paris", "Why?\nParis", 0),
        ("exact", "-", "", 0),
    ],
)
def test_exact_texts(spec: str, gold: str, response: str, reward: int) -> None:
    assert judged(spec, gold, response).reward == reward


def test_an_exact_verdict_says_which_option_would_help() -> None:
    assert "exact:case=ignore" in judged("exact", "Paris", "paris").reason
    with pytest.raises(DomainError, match="colour"):
        find("exact:colour=ignore")


BILL = {"vendor": "ACME", "total": 12.5, "paid": True, "to": {"city": "Ulm"}, "items": ["a", "b"]}


def bill(**more: object) -> str:
    return json.dumps({**BILL, **more})


@pytest.mark.parametrize(
    ("spec", "response", "reward"),
    [
        ("json", bill(), 1.0),
        ("json", f"Here it is:\n```json\n{bill()}\n```\nDone.", 1.0),
        ("json", bill(total="12.50"), 1.0),
        ("json", bill(total=12.51), 0.8),
        ("json:tolerance=0.01", bill(total=12.51), 1.0),
        ("json:tolerance=0.01", bill(total=12.52), 0.8),
        ("json:tolerance=1%", bill(total=12.6), 1.0),
        ("json", bill(paid=1), 0.8),
        ("json", bill(vendor="Acme"), 0.8),
        ("json:case=ignore", bill(vendor="Acme"), 1.0),
        ("json", bill(items=["b", "a"]), 0.8),
        ("json:order=ignore", bill(items=["b", "a"]), 1.0),
        ("json", bill(to={"city": "Bonn"}, paid=None), 0.6),
        ("json", bill(note="x"), 1.0),
        ("json:extra=wrong", bill(note="x"), 5 / 6),
        ("json", bill() + "\n" + bill(total=1), 0.0),
        ("json", bill()[:-1] + ', "total": 13}', 0.0),
        ("json", "vendor: ACME", 0.0),
        ("json", "[]", 0.0),
        ("json", '{"total": NaN}', 0.0),
        ("json", f"<think>{bill()}</think>", 0.0),
        ("json", f"<answer>{bill()}</answer>", 1.0),
        ("json", f"<answer>{bill()}</answer> That is wrong.", 0.0),
        ("json", f"{bill(total=1)} oder {bill()}", 0.0),
    ],
)
def test_json_is_judged_field_by_field(spec: str, response: str, reward: float) -> None:
    verdict = judged(spec, json.dumps(BILL), response)
    assert verdict.reward == pytest.approx(reward), verdict


def test_fields_have_types_weights_and_a_schema_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "bill.json").write_text(json.dumps({"required": ["vendor"]}))
    (tmp_path / "fields.toml").write_text(
        'schema = "bill.json"\n[fields.vendor]\ncase = "ignore"\n'
        '[fields.total]\ntype = "number"\ntolerance = 0.1\nweight = 3\n'
        '[fields.code]\ntype = "text"\ndescription = "the order\'s"\n'
    )
    spec, gold = f"json:{tmp_path / 'fields.toml'}", '{"vendor":"A","total":10,"code":"007"}'
    whole = judged(spec, gold, '{"vendor": "a", "total": 10.05, "code": "007", "more": 1}')
    assert whole.reward == 1.0
    assert judged(spec, gold, '{"vendor": "a", "total": 11, "code": "007"}').reward == 2 / 5
    part = judged(spec, gold, '{"vendor": "a", "total": 10, "code": "7"}')
    assert part.reward == 4 / 5
    assert part.details["code"] == '"7" is not "007"'
    broken = judged(spec, gold, '{"total": 10, "code": "007"}')
    assert broken.reward == 0.0
    assert broken.reason.startswith("schema: 'vendor' is a required property")
    for bad in (
        "json:none.toml",
        "json:tolerance=far",
        "json:colour=red",
        "json:{}x",
        f"json:tolerance={'1' * 300}x",
    ):
        with pytest.raises(DomainError):
            find(bad)


def test_fields_are_read_off_the_data_and_told_to_the_model() -> None:
    rows = (Problem("1", "?", json.dumps(BILL)), Problem("2", "?", '{"vendor": null, "due": "x"}'))
    fitted, spec = with_data(find("json:tolerance=0.1"), "json:tolerance=0.1", rows)
    assert json.loads(spec.removeprefix("json:"))["fields"]["total"] == {"type": "number"}
    assert find(spec).identity == fitted.identity
    from tfgrpo.store.records import Library, Version

    template = fitted.template("rollout")
    library = Library(Version(0, b"", None, None, 0, 0, "a", 0, "m", {}), ())
    (system, *_) = fitted.render(template, library, rows[0], "Extract.")
    assert "- total (number)\n" in system[1]
    assert "- to.city (text)\n" in system[1]


@pytest.mark.parametrize("fields", ["", '{"fields": {"name": {}, "to": {}, "tags": {}}}'])
def test_a_ground_truth_word_for_word_is_right_where_an_object_is_null_or_empty_in_some_rows(
    fields: str,
) -> None:
    golds: list[dict[str, object]] = [
        {"name": "x", "to": None, "tags": {}},
        {"name": "y", "to": {"city": "Ulm", "at": {"floor": 2}}, "tags": {"a": [1]}},
        {"name": "z", "to": {}, "tags": None},
        {"name": "w", "to": {"city": None, "at": None}, "tags": {"a": []}},
    ]
    rows = [Problem(str(n), "?", json.dumps(gold)) for n, gold in enumerate(golds)]
    domain, _ = with_data(find(f"json:{fields}"), f"json:{fields}", rows)
    assert domain.function is not None
    for row, gold in zip(rows, golds, strict=True):
        assert domain.function(row, json.dumps(gold)).reward == 1.0
        for other in golds:
            if other is not gold:
                verdict = domain.function(row, json.dumps({**other, "name": gold["name"]}))
                assert (verdict.reward or 0) < 1.0, (gold, other)


def answer(request: dict) -> str:  # type: ignore[type-arg]
    """A model that gives `spam` for what has an even seed, and reflects as little as it can."""
    if stage(request) == "rollout":
        assert "The labels are:\n- ham\n- spam" in request["messages"][0]["content"]
        return f"Label: {'spam' if request['seed'] % 2 else 'ham'}"
    if stage(request) == "comparison":
        return json.dumps(comparison_of([]))
    return "It chose."


def test_a_run_on_labels_records_them_and_evaluations_use_the_same(
    cli: Cli, tmp_path: Path
) -> None:
    rows = [("win a prize", "spam"), ("see you at noon", "ham"), ("cheap pills", "spam")]
    (tmp_path / "mail.csv").write_text("text,label\n" + "".join(f"{t},{g}\n" for t, g in rows))
    (tmp_path / "one.csv").write_text("text,label\ncheap watches,spam\n")
    with ScriptedEndpoint(answer) as server:
        (tmp_path / "tfgrpo.toml").write_text(
            f'[model]\nmodel = "m"\nbase_url = "{server.base_url}"\n[train]\ndomain = "choice"\n'
        )
        cli("train", "mail.csv", "--epochs", "1", "--heldout", "one.csv")
        cli("eval", "one.csv", "--samples", "2")
    (run,) = json.loads(cli("runs", "--json").stdout)
    assert run["config"]["domain"] == 'choice:["ham", "spam"]'
    assert run["config"]["max_tokens"] == 4096
    cases = [{"gold": "spam", "pred": "Spam"}, {"gold": "ham", "pred": "spam or ham"}]
    (tmp_path / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    judged = cli("verify", "cases.jsonl", "--all").stdout
    assert "last line: equal" in judged
    assert "no label: last line: 'spam or ham' is none of the labels" in judged


def test_an_application_reads_answers_as_training_did(tmp_path: Path) -> None:
    with Store.init(tmp_path / "store.db", author="tests") as store:
        stored = store.library("HEAD")
    labels = PromptLibrary(stored, domain='choice:["refund","damage"]')
    assert labels.answer("It is torn.\nLabel: Damage") == "damage"
    assert labels.answer('{"label": "refund"}') == "refund"
    assert labels.answer("Refund or damage, who knows?") is None
    assert PromptLibrary(stored, domain="json").answer('So: {"a": [1]}') == {"a": [1]}
    assert PromptLibrary(stored, domain="json").answer("nothing") is None
    assert PromptLibrary(stored, domain="exact").answer("Thinking.\nAnswer: 12 May") == "12 May"
    assert PromptLibrary(stored, domain="math").answer("3 * 4 = \\boxed{12}.") == "12"
    assert PromptLibrary(stored, domain="math").answer("12") is None
    assert PromptLibrary(stored, domain="exact:read=response").answer("A\nB") == "A\nB"
    with pytest.raises(DomainError, match="does not say how an answer is read"):
        PromptLibrary(stored, domain="web").answer("12")


def test_an_application_reads_an_answer_beside_its_problem(tmp_path: Path) -> None:
    with Store.init(tmp_path / "store.db", author="tests") as store:
        stored = store.library("HEAD")
    question = "How many are left?\n(A) 3 is wrong\n(B) cannot be determined"
    given = r"\boxed{(B) cannot be determined}"
    for domain in ('choice:["A","B"]', "math"):
        library = PromptLibrary(stored, domain=domain)
        for problem in (question, {"problem": question}, Problem("p", question, "A")):
            assert library.answer(given, problem) == "B"
        assert library.answer(r"\boxed{(A) 3 is wrong}", question) == "A"
        assert library.answer(given, "Another problem") != "B"
        assert library.answer(given) != "B"


def test_what_a_verifier_takes_for_no_answer_or_for_several_is_read_so(tmp_path: Path) -> None:
    with Store.init(tmp_path / "store.db", author="tests") as store:
        stored = store.library("HEAD")
    math = PromptLibrary(stored, domain="math")
    assert math.answer(r"\boxed{8}. That is wrong.") is None
    assert math.answer(r"It is not \boxed{8}.") is None
    assert math.answer(r"$x = \boxed{3}$ or $x = \boxed{8}$") == "x = 3, x = 8"
    exact = PromptLibrary(stored, domain="exact")
    assert exact.answer("\\boxed{Paris}\nAnswer: Rome") is None
    assert exact.answer("\\boxed{Paris}\nAnswer: Paris.") == "Paris"
