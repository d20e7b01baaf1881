"""The tasks of the race: what is learned from, what is chosen on, and what is sealed.

`bills` and `times`, a part of it, are generated here. `formula`, `labels`, `top-ups`, `payments`,
`cash`, `identity`, `currencies` and `messages` are public data that is given as a folder and is no
part of this repository:
`formula_train_500.jsonl` and `formula_val_300.jsonl`, and `banking77_train_3000.jsonl` and
`banking77_val_600.jsonl`.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from benchmarks.learners import bills

Rows = list[dict[str, Any]]
Labels = Mapping[str, str]
BOX = "Write the calculation, then the result as a number in \\boxed{}."
RESULT = "Answer with the number alone, in \\boxed{}."
TRAIN, VALIDATION, SEALED = 60, 40, 150
MANY = 400, 100
"""What is learned from, and what is chosen on, where there are all 77 labels."""
LOOKED_AT = 270
"""Messages of the other file that are no part of the sealed ones: 120 that the number of examples
in a prompt was chosen on (`RESULTS-retrieval.md`), and 150 that tfgrpo was measured on with one
prompt for all of them, by a fault of the race."""
TIMES = 3
"""The house rules of bills that are about time, which come first."""
CARDS = {
    "activate_my_card": "a new card is to be activated, or its activation fails",
    "card_arrival": "a card that was ordered has not come, or is to be traced",
    "card_delivery_estimate": "how long deliveries take in general, to a country, on a chosen date "
    "or faster",
    "order_physical_card": "how, where and for what price a card of plastic is ordered",
    "get_physical_card": "the PIN of a card: where it is, when it comes",
    "getting_spare_card": "one more card beside the first, for the family too",
    "card_linking": "a card is to appear in the app, or one that was lost is found again",
    "getting_virtual_card": "how to get a virtual card, or it has not come",
    "get_disposable_virtual_card": "disposable cards: what they are, how to get one",
    "card_acceptance": "where a card is accepted",
}
"""Ten labels whose borders are a matter of convention, and where each ends."""


TOP_UPS = {
    "automatic_top_up": "money is to be added by itself, or that does not work",
    "pending_top_up": "a top-up has not come yet or is shown as pending",
    "top_up_by_bank_transfer_charge": "what a top-up by a bank transfer costs",
    "top_up_by_card_charge": "what a top-up by a card costs",
    "top_up_by_cash_or_cheque": "whether and how cash or a cheque can be paid in",
    "top_up_failed": "a top-up was declined, or did not work",
    "top_up_limits": "how much can be topped up, or whether there is a limit",
    "top_up_reverted": "a top-up went through and was taken back",
    "topping_up_by_card": "how to top up with a card, or one that does not show after it",
    "verify_top_up": "a code or a verification that a top-up asks for",
}
"""Ten others that neighbour, of which no arm had seen a message when they came."""
PAYMENTS = {
    "card_payment_not_recognised": "a payment with the card that the customer did not make",
    "direct_debit_payment_not_recognised": "a direct debit that the customer did not set up",
    "card_payment_fee_charged": "a fee for a payment with the card",
    "card_payment_wrong_exchange_rate": "a payment abroad was converted at a wrong rate",
    "pending_card_payment": "a payment with the card is shown as pending",
    "declined_card_payment": "a payment with the card did not go through",
    "transaction_charged_twice": "one payment was taken two times",
    "extra_charge_on_statement": "a small charge on the statement that nobody can explain",
    "request_refund": "how to get money back for a purchase",
    "Refund_not_showing_up": "a refund was promised and is not in the account",
}
"""Ten more, likewise."""
CASH = {
    "atm_support": "at which machines, and where, cash can be withdrawn",
    "card_swallowed": "a machine kept the card",
    "pin_blocked": "the PIN is blocked after wrong tries",
    "cash_withdrawal_charge": "a fee for a withdrawal of cash",
    "cash_withdrawal_not_recognised": "a withdrawal of cash that the customer did not make",
    "declined_cash_withdrawal": "a machine gave no cash",
    "pending_cash_withdrawal": "a withdrawal of cash is shown as pending",
    "wrong_amount_of_cash_received": "a machine gave another amount than was asked for",
    "wrong_exchange_rate_for_cash_withdrawal": "cash abroad was converted at a wrong rate",
    "balance_not_updated_after_cheque_or_cash_deposit": "a cheque or cash that was paid in is not "
    "in the account",
}
IDENTITY = {
    "verify_my_identity": "how an identity is verified",
    "why_verify_identity": "why an identity has to be verified",
    "unable_to_verify_identity": "the verification of an identity does not work",
    "verify_source_of_funds": "where the money in the account comes from",
    "edit_personal_details": "a name, an address or the like is to be changed",
    "age_limit": "how old one has to be",
    "terminate_account": "the account is to be closed",
    "passcode_forgotten": "the passcode of the app is forgotten",
    "lost_or_stolen_phone": "the phone is lost or was stolen",
    "change_pin": "how the PIN of a card is changed",
}
"""Twenty more, in two sets, for the learner that knows its budget."""
CURRENCIES = {
    "supported_cards_and_currencies": "which cards and currencies an account can be topped up with",
    "visa_or_mastercard": "whether a card is a Visa or a Mastercard, or which one can be chosen",
    "country_support": "in which countries there are accounts or cards",
    "exchange_charge": "what an exchange of currencies costs",
    "exchange_rate": "which rate currencies are exchanged at",
    "exchange_via_app": "how currencies are exchanged in the app",
    "fiat_currency_support": "which currencies can be held and exchanged",
    "apple_pay_or_google_pay": "how the card works with a phone's wallet",
    "receiving_money": "how money or a salary comes in, in which currencies",
    "disposable_card_limits": "how many disposable cards there may be, and payments with one",
}
"""Ten more, for the learner whose prompts get the nearest examples."""


@dataclass(frozen=True, slots=True)
class Task:
    """A task. `kind` is number or label, `seed_text` what every learner starts from, and `rules`
    what a person who knows the conventions would write."""

    name: str
    kind: str
    seed_text: str
    rules: tuple[str, ...]
    train: Rows
    validation: Rows
    sealed: Rows

    @property
    def digest(self) -> str:
        """Says whether two results are of the same problems."""
        text = json.dumps([self.seed_text, self.train, self.validation, self.sealed])
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def cut(self, limit: int | None) -> Task:
        """Returns the task with the first problems of each part alone."""
        if limit is None:
            return self
        return replace(
            self,
            train=self.train[:limit],
            validation=self.validation[:limit],
            sealed=self.sealed[:limit],
        )


def bills_task(folder: Path | None) -> Task:
    """Returns the bills of a firm with eight house rules."""
    return Task(
        "bills",
        "number",
        f"A small firm bills its work. {BOX}",
        bills.RULES,
        *(bills.draw(part) for part in bills.PARTS),
    )


def times_task(folder: Path | None) -> Task:
    """Returns the bills of a firm with three house rules, those for time, of which the result
    alone is asked for."""
    return replace(
        bills_task(folder),
        name="times",
        seed_text=f"A small firm bills its work. {RESULT}",
        rules=bills.RULES[:TIMES],
        **{part: bills.draw(part, first=TIMES) for part in bills.PARTS},
    )


def formula_task(folder: Path | None) -> Task:
    """Returns questions about financial formulas, with conventions of their own."""
    train, rest = (_read(folder, f"formula_{part}.jsonl") for part in ("train_500", "val_300"))
    rows = [
        [{"id": r["id"], "problem": r["question"], "answer": str(r["answer"])} for r in part]
        for part in (train, rest)
    ]
    for part in rows:
        random.Random("formula").shuffle(part)
    return Task(
        "formula",
        "number",
        f"Answer a question about finance. {BOX}",
        (
            "In a net present value the first cash flow counts in full, for period 0: divide the "
            "n-th by (1 + i)^(n - 1).",
            "Rates, yields and returns are given as fractions: 5 % is 0.05.",
            "Margins, return on assets and return on equity are given in percent: 0.4 is 40.",
            "Millions and billions are written out with all their zeros.",
        ),
        rows[0][:TRAIN],
        rows[1][SEALED : SEALED + VALIDATION],
        rows[1][:SEALED],
    )


def labels_task(folder: Path | None, name: str = "labels", labels: Labels = CARDS) -> Task:
    """Returns a bank's messages with ten neighbouring labels."""
    parts = []
    for part in ("train_3000", "val_600"):
        rows = [r for r in _read(folder, f"banking77_{part}.jsonl") if r["label"] in labels]
        random.Random("labels").shuffle(rows)
        parts.append([{"id": r["id"], "problem": r["text"], "answer": r["label"]} for r in rows])
    learned = {_plain(r) for r in parts[0][: TRAIN + VALIDATION]}
    rest = {_plain(r): r for r in parts[1] + parts[0][TRAIN + VALIDATION :]}
    return Task(
        name,
        "label",
        _asking(labels),
        tuple(f"{label}: {meaning}." for label, meaning in labels.items()),
        parts[0][:TRAIN],
        parts[0][TRAIN : TRAIN + VALIDATION],
        [r for text, r in rest.items() if text not in learned][:SEALED],
    )


def messages_task(folder: Path | None) -> Task:
    """Returns a bank's messages with all of its labels; nobody wrote rules for them."""
    rows, others = (_read(folder, f"banking77_{part}.jsonl") for part in ("train_3000", "val_600"))
    labels = sorted({row["label"] for row in rows})
    random.Random("messages").shuffle(rows)
    random.Random(5).shuffle(others)
    known, sealed = (
        [{"id": r["id"], "problem": r["text"], "answer": r["label"]} for r in part]
        for part in (rows[: sum(MANY)], others[LOOKED_AT : LOOKED_AT + SEALED])
    )
    return Task(
        "messages", "label", _asking(labels), (), known[: MANY[0]], known[MANY[0] :], sealed
    )


def _asking(labels: Iterable[str]) -> str:
    return (
        f"A message to a bank gets one of these labels: {', '.join(labels)}. "
        "Answer with the label alone, in \\boxed{}."
    )


TASKS: dict[str, Callable[[Path | None], Task]] = {
    "bills": bills_task,
    "times": times_task,
    "formula": formula_task,
    "labels": labels_task,
    "top-ups": partial(labels_task, name="top-ups", labels=TOP_UPS),
    "payments": partial(labels_task, name="payments", labels=PAYMENTS),
    "cash": partial(labels_task, name="cash", labels=CASH),
    "identity": partial(labels_task, name="identity", labels=IDENTITY),
    "currencies": partial(labels_task, name="currencies", labels=CURRENCIES),
    "messages": messages_task,
}


def find_task(name: str, folder: Path | None, limit: int | None = None) -> Task:
    """Returns a task. Raises UsageError where its data is not given."""
    return TASKS[name](folder).cut(limit)


def _plain(row: dict[str, Any]) -> str:
    return str(row["problem"]).strip().lower()


def _read(folder: Path | None, name: str) -> Rows:
    if folder is None or not (folder / name).is_file():
        raise click.UsageError(f"--data takes the folder that holds {name}")
    lines = (folder / name).read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines if line.strip()]
    return [{"id": f"{Path(name).stem}-{number}", **row} for number, row in enumerate(rows)]
