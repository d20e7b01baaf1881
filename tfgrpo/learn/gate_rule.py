"""What a candidate has to show on held-out problems to enter: the rules of the gate.

A rule looks at one estimate, the mean difference over problems with its standard error. One that
lets in whatever is not shown to be worse is close to no gate at all, because a trial that can be
paid for seldom shows anything, and one that asks for significance keeps out most of what helps.
"""

from __future__ import annotations

from typing import get_args

from tfgrpo.settings import GateRule

GATE_RULES: tuple[GateRule, ...] = get_args(GateRule)
ROUNDING = 1e-9
"""Where one problem alone differs, its mean is one standard error, give or take the last digit."""


def passes(rule: GateRule, mean: float, error: float, quantile: float) -> bool:
    """Returns whether an effect passes a rule.

    `mean` is the effect in reward, `error` its standard error (infinite where it is not known),
    `quantile` how many standard errors a 95 % interval reaches. Works elementwise on arrays.

    - one-se: better by more than one standard error;
    - above-zero: better at all;
    - significant: the interval lies above zero;
    - not-worse: the interval does not lie below zero.
    """
    match rule:
        case "one-se":
            return mean > error + ROUNDING
        case "above-zero":
            return mean > ROUNDING
        case "significant":
            return mean > quantile * error + ROUNDING
        case "not-worse":
            return mean >= -quantile * error - ROUNDING
