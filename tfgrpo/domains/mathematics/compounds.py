r"""Formulas of chemistry: `H_2SO_4`, `\mathrm{SO_4^{2-}}`, `\ce{2H2 + O2 -> 2H2O}`.

A parser would multiply symbols, and words are compared without their case. These are compared
letter by letter, whatever they are set in, the sides of a reaction in any order.
"""

from __future__ import annotations

import re
from typing import NamedTuple

ELEMENT = (
    "(?:A[cglmrstu]|B[aehikr]?|C[adeflmnorsu]?|D[bsy]|E[rsu]|F[elmr]?|G[ade]|H[efgos]?|I[nr]?|Kr?"
    "|L[airuv]|M[cdgnot]|N[abdehiop]?|O[gs]?|P[abdmortu]?|R[abefghnu]|S[bcegimnr]?|T[abcehilms]"
    "|U|V|W|Xe|Yb?|Z[nr])"
)
ATOMS = rf"(?:{ELEMENT}\d*)+"
GROUPS = rf"(?:{ATOMS}|[(\[](?:{ATOMS}|\({ATOMS}\)\d*)+[)\]]\d*)+"
SPECIES = re.compile(rf"\d*(?:{GROUPS}(?:\.\d*{GROUPS})?(?:\^(?:\d*[+-]|[+-]\d))?|e\^-)\Z")
SET = re.compile(r"\\(?:ce|mathrm)\s*\{")
LOOKS = re.compile(
    r"\\(?:ce|mathrm|text|textrm|mathsf)(?![a-zA-Z])|\\[,;:! ]|[{}\s~$_]|\((?:s|l|g|aq)\)"
)
"""How a formula is set, and the states of matter behind one."""
DOT = re.compile(r"\\cdot(?![a-zA-Z])|[·•*]")
ARROW = re.compile(r"\\(?:long)?rightarrow|\\to(?![a-zA-Z])|\\rightleftharpoons|<?[-=]>|[→⟶⇌]")
PLUS = re.compile(r"(?<!\^)(?<!\^\d)\+(?=\S)")
ELEMENTAL = re.compile(rf"\d*{ELEMENT}")
"""One element, which may be a unit as well: `5\\,\\mathrm{H}`."""


class Compound(NamedTuple):
    """The species of each side of a reaction, or of a formula alone, in order.

    `sure` says that it can be nothing but chemistry.
    """

    sides: tuple[tuple[str, ...], ...]
    sure: bool


def compound(text: str) -> Compound | None:
    """Returns a formula or a reaction without how it is set; None for any other text."""
    sides = [LOOKS.sub("", DOT.sub(".", side)) for side in ARROW.split(text)]
    species = [PLUS.split(side) for side in sides]
    if not all(SPECIES.match(one) for side in species for one in side) or len(sides[0]) < 2:
        return None
    looks = SET.search(text) and not ELEMENTAL.fullmatch(sides[0])
    sure = len(sides) > 1 or bool(looks or re.search(r"\^|[a-z]\d", sides[0]))
    return Compound(tuple(tuple(sorted(side)) for side in species), sure)


def same_compound(gold: str, answer: str) -> bool | None:
    """Whether two formulas are the same; None where that is another rule's matter.

    Where only the case differs they are two, but `No`, which is a word as well.
    """
    want, have = compound(gold), compound(answer)
    if want is None or have is None:
        return False if want is not None and want.sure else None
    if want.sides == have.sides:
        return True
    cased = str(want.sides).casefold() == str(have.sides).casefold() != "(('no',),)"
    return False if want.sure or have.sure or cased else None
