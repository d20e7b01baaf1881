"""A right answer whose own calculation does not give it, where that is numbers alone."""

from __future__ import annotations

import pytest

from tfgrpo import domains
from tfgrpo.data.problems import Problem
from tfgrpo.domains.mathematics.calculation import flaw

SOUND = [
    r"She has 5 + 3 = 8 apples. \boxed{8}",
    r"5 \times 3 = 15, then 15 - 7 = 8. \boxed{8}",
    r"$48 / 2 = 24$ and $24 + 48 = 72$, so \boxed{72}",
    r"\[ 3 \cdot 4 = 12 \] \[ 12 + 2 = 14 \] \boxed{14}",
    r"3 * 4 * 2 = 12 * 2 = 24 \boxed{24}",
    r"10 / 3 = 3.33 and 3.33 * 3 = 9.99 \boxed{10} and x = 10",
    r"2^10 = 1024 \boxed{1024}",
    r"<<48/2=24>>24 clips, <<24+48=72>>72. \boxed{72}",
    r"\frac{3}{4} + \frac{1}{4} = 1 \boxed{1}",
    r"\$5 \times 3 = \$15. \boxed{15}",
    r"17 \bmod 5 = 2, \boxed{2}",
    r"17 mod 5 = 2, \boxed{2}",
    r"3 * 4 = 13. No: 3 * 4 = 12. \boxed{12}",
    r"x = 5 + 3 = 8 \boxed{8}",
    r"f(2) = 7, g(3) + 1 = 5 \boxed{12}",
    r"The answer is \boxed{12}",
    r"20% of 50 = 10 \boxed{10}",
    r"log 100 = 2 \boxed{2}",
    r"5! = 120 \boxed{120}",
    r"It takes 3 hours at 60 km/h = 180 km. \boxed{180}",
    r"1,250 + 750 = 2,000 \boxed{2000}",
    r"2x + 3 = 11, so x = 4 \boxed{4}",
    r"\binom{5}{2} = 10 \boxed{10}",
    r"7 = 2 \pmod 5, 3 + 4 = 7 \boxed{7}",
    r"24 = 2^3 \cdot 3 \boxed{24}",
    r"101_2 + 1_2 = 110_2 \boxed{110_2}",
    r"3 − 1 = 2 \boxed{2}",
    r"5 + 3 = 8 \boxed{8.0}",
    r"0.1 + 0.2 = 0.3 \boxed{0.3}",
    r"\sqrt{16} + 2 = 6 \boxed{6}",
    r"3 + 4 = 7 apples and 5 + 1 = 6 pears, 13 in all. Let n = 13. \boxed{13}",
    r"(3, 4) = (3, 4) \boxed{7}",
    "- 51 / 3 = 17\n- 68 / 4 = 17\n" r"\boxed{17}",
    "\n- 5 \\cdot 8 = -40\n" r"\boxed{-40}",
    r"63 \div 5 = 12 \text{ remainder } 3, \boxed{12\frac{3}{5}} is 12.6, x = 1",
    r"12 : (2+2) = 3 \boxed{3}",
    r"24 : 6 + 2 = 6 \boxed{6}",
    r"1.000 + 500 = 1.500 \boxed{1500}",
    r"1.200 * 3 = 3.600 \boxed{3600}",
    r"2.500 : 2 = 1.250 \boxed{1250}",
    r"(1.000 + 500) : 2 = 750 \boxed{750}",
    r"1.250,50 + 1 = 1.251,50 \boxed{1251.5}",
    r"1011 + 1 = 1100 in binary \boxed{1100}",
    r"In base 8, 5 + 5 = 12. \boxed{12}",
    r"Modulo 7 we have 5 + 4 = 2. \boxed{2}",
    r"Base 8: 17 + 1 = 20. In decimal 16 + 1 = 17. \boxed{17}",
    r"In base two 1011 + 1 = 1100 = 12. \boxed{12}",
    r"To base 8: 13 = 15. \boxed{15}",
    r"Modulo $7$: 3 \cdot 5 = 15 = 1, and 1 / 3 = 5. \boxed{5}",
    r"We reduce \pmod{12}: 9 + 5 = 14 = 2, and 2 - 5 = 9. \boxed{9}",
    r"7 \cdot 8 \equiv 1 \pmod 5. \boxed{1}",
    r"Modulo p we have 5 + 4 = 2. \boxed{2}",
    r"Modulo p and mod 5 we have 5 + 4 = 2. \boxed{2}",
    rf"mod {'7' * 5000}: 5 + 4 = 2. \boxed{{2}}",
    " ".join(f"mod {number}," for number in range(2, 5000)) + r" 5 + 4 = 2. \boxed{2}",
    r"We take it mod 10^9+7: 5 + 4 = 2. \boxed{2}",
    r"In base b, 5 + 4 = 12. \boxed{12}",
    r"5 + 4 \equiv 2, so 5 + 4 = 2. \boxed{2}",
    r"The remainder mod 7 of 5 + 4 = 9 is \boxed{2}",
    r"4 \times 2\frac12 = 10 \boxed{10}",
    r"1 / 2 = .5 \boxed{.5}",
    r"-5 \cdot 8 = -40, 9 \cdot 17 = 153, \frac{-40}{153} \boxed{-\frac{40}{153}}",
]
FLAWED = [
    r"She has 5 + 3 = 9 apples. \boxed{8}",
    r"5 \times 3 = 16, then 15 - 7 = 8. \boxed{8}",
    r"$48 / 2 = 25$ and so \boxed{72}",
    r"3 * 4 * 2 = 13 * 2 = 24 \boxed{24}",
    r"10 / 3 = 3.43 \boxed{10}",
    r"<<48/2=23>>23 clips. \boxed{72}",
    r"\frac{3}{4} + \frac{1}{4} = 2 \boxed{1}",
    r"\$5 \times 3 = \$16. \boxed{15}",
    r"2^10 = 1000 \boxed{1024}",
    r"x = 5 + 3 = 9 \boxed{8}",
    r"5 + 3 = 8. \boxed{14}",
    r"1,250 + 750 = 2,100 \boxed{2000}",
    r"5 + 3 = 8, 8 * 2 = 16 \boxed{12}",
    r"3 − 1 = 3 \boxed{2}",
    r"12 : (2+2) = 5 \boxed{3}",
    r"1.000 + 500 = 1.600 \boxed{1500}",
    r"Step 1: 5 + 3 = 9 \boxed{8}",
    r"The base is 5 + 3 = 9 \boxed{8}",
    r"1 / 2 = .6 \boxed{.5}",
    r"In base 8, 5 + 5 = 13. \boxed{12}",
    r"1011 in binary is 11, and 11 + 5 = 17. \boxed{16}",
    r"17 \bmod 5 = 2, and 2 + 5 = 9. \boxed{7}",
    r"7 \equiv 2 \pmod 5. Then 3 + 4 = 8. \boxed{7}",
    r"101_2 = 5 in base 2, so 5 \times 3 = 16. \boxed{15}",
    r"Modulo 7 we have 5 + 4 = 3. \boxed{2}",
    r"Modulo 7 and in base 3, 5 + 4 = 10. \boxed{2}",
    r"4 \times 2\frac12 = 4 \boxed{10}",
]


@pytest.mark.parametrize("response", SOUND)
def test_a_sound_calculation_has_no_flaw(response: str) -> None:
    assert flaw(response) is None


@pytest.mark.parametrize("response", FLAWED)
def test_a_false_equation_or_an_answer_from_nowhere_is_a_flaw(response: str) -> None:
    assert flaw(response)


def test_the_option_takes_the_reward_of_a_flawed_winner_and_says_why() -> None:
    usual, checked = domains.find("math"), domains.find("math:calculation=checked")
    assert usual.function is not None
    assert checked.function is not None
    assert checked.at_once is None
    problem = Problem("p", "?", "8")
    wrong = checked.function(problem, FLAWED[0])
    assert usual.function(problem, FLAWED[0]).reward == 1.0
    assert (wrong.reward, wrong.reason) == (0.0, "calculation: 5 + 3 = 9 is not so")
    assert checked.function(problem, SOUND[0]).reward == 1.0
    assert checked.identity != usual.identity


def test_a_long_response_takes_no_time() -> None:
    assert flaw("1 + " * 20_000 + r"1 = 2 \boxed{2}") is None
