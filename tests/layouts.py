"""Layouts of right answers: what stands around them or sets them says nothing."""

from __future__ import annotations

from collections.abc import Iterator

from word_answers import Case, choice

AROUND = (
    "{L} — {}",
    "{L} – {}",
    "{L} - {}",
    "{L} => {}",
    "{L} ⇒ {}",
    "{L}: {}\n\n---",
    "{L}: {}\n***",
    "{L}: {}\n\n___\n",
    "{L}: {}</s>",
    "{L}: {}<|im_end|>",
    "{L}: {}\n<|eot_id|>",
    "{L}: <b>{}</b>",
    "<b>{}</b>",
    "<strong>{L}: {}</strong>",
    "{L}: {}。",
    "{L}: {}।",
    "答案是{}。",
    "{L}: ${}$",
    "{L}: $ {} $",
    r"{L}: \({}\)",
    r"{L}: \text{{}}",
    r"{L}: $\text{{}}$",
    r"{L}: \textbf{{}}",
)
STRUCK = ("{L}: ~~{}~~", "{L}: <s>{}</s>", "{L}: <del>{}</del>", r"{L}: \sout{{}}", "{L} !- {}")
NUMBERS = (
    ("5434012", (r"\text{USD }5,434,012", r"5\;434\;012", r"5{\,}434{\,}012", r"5\:434\:012")),
    ("39", (r"\text{Answer: }39", "39\\ ", "39\\\\", r"\rm 39", r"\texttt{39}", r"x\in\{39\}")),
    (r"\{5, 39\}", (r"\lbrace 5,39\rbrace", r"\lbrace 39, 5 \rbrace", r"\{39,5\}")),
    (r"5.7 \times 10^{4}", (r"5.7\mathrm{E}4", r"5.7\text{E}4", "5.7E4")),
    (r"\{39\}", (r"x\in\{39\}", r"\lbrace 39\rbrace")),
)
OTHERS = (
    ("5434012", (r"5\;434\;0123", r"5\;43\;4012", r"\text{USD }5,434,013", r"5{\,}434{,}012")),
    ("39", (r"\text{not: }39", r"x\in\{39, 40\}", r"x\notin\{39\}", r"\rm 39x", r"\texttt{-39}")),
    ("3", (r"\text{Part 3: }4", r"3\\4", r"3\;4", r"\text{3: }4", r"\text{under: }3")),
    (r"\{5, 39\}", (r"\lbrace 5,40\rbrace", r"\lbrace 5\rbrace")),
    (r"5.7 \times 10^{4}", (r"5.7\mathrm{E}5", r"5.7\mathrm{e}4", r"5.7\mathrm{E}-4")),
)


def layouts() -> Iterator[Case]:
    """Yields right answers in every layout, and other ones in some."""
    for spec, name, one, other in (
        (choice(["refund", "damage"]), "Label", "refund", "damage"),
        ("exact", "Answer", "oxygen", "iron"),
        ("exact", "Answer", "Marie Curie", "Niels Bohr"),
    ):
        for layout in AROUND:
            given = layout.replace("{L}", name)
            yield Case(spec, one, given.replace("{}", one), 1.0)
            yield Case(spec, one, given.replace("{}", other), 0.0)
        for layout in STRUCK:
            yield Case(spec, one, layout.replace("{L}", name).replace("{}", one), 0.0)
    for layout, reward in (("Answer: $@$", 1.0), (r"Answer: \(@\)", 1.0), ("Answer — @", 1.0)):
        yield Case("exact", "7", layout.replace("@", "7"), reward)
    yield from (
        Case("exact", "7", "Answer - 7", 0.0),
        Case("exact", "-7", "Answer: $-7$", 1.0),
        Case("exact", "7", "Answer: $-7$", 0.0),
        Case("exact", "7", "Answer: $7", 0.0),
        Case("exact", "$7", "Answer: $7", 1.0),
        Case("exact", "<b>7</b>", "Answer: <b>7</b>", 1.0),
    )
    for pairs, reward in ((NUMBERS, 1.0), (OTHERS, 0.0)):
        for gold, answers in pairs:
            for answer in answers:
                yield Case("math", gold, rf"\boxed{{{answer}}}", reward)
