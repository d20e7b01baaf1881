"""What counts as the answer, and when it is the right one."""

from __future__ import annotations

import re
import time

import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.domains.mathematics import parsing
from tfgrpo.domains.mathematics.answers import at_once, check_gold, judge
from tfgrpo.domains.mathematics.extract import bare, extract

EXTRACTED = [
    (r"so \boxed{4}", "4"),
    (r"first \boxed{4}, no: \boxed{5}", "5"),
    (r"<answer>4</answer>", "4"),
    (r"<ANSWER> 4 </ANSWER>", "4"),
    (r"<answer>\boxed{4}</answer>", "4"),
    (r"<answer>4</answer> or rather \boxed{5}", "5"),
    (r"\boxed{4} or rather <answer>5</answer>", "5"),
    ("<answer>\n4\n</answer>", "4"),
    (r"\boxed{\frac{1}{\sqrt{2}}}", r"\frac{1}{\sqrt{2}}"),
    (r"\boxed {7}", "7"),
    (r"\boxed{\boxed{7}}", "7"),
    (r"\boxed{x \in \{1, 2\}}", r"x \in \{1, 2\}"),
    (r"\boxed{4", None),
    (r"\boxed{}", None),
    (r"\boxed{  }", None),
    ("I considered 5 but I do not know", None),
    ("The answer is 5.", None),
    ("", None),
    ("5", None),
    (r"<think>maybe \boxed{4}</think> It is \boxed{5}.", "5"),
    (r"<think>\boxed{4}</think> I do not know.", None),
    (r"<think>so far \boxed{4}", None),
    (r"<THINK>\boxed{4}</THINK> I do not know.", None),
    (r"<thinking>\boxed{4}</thinking> I do not know.", None),
    (r"<reasoning>\boxed{4}</reasoning><answer>5</answer>", "5"),
    (r"[THINK]\boxed{4}[/THINK]\boxed{5}", "5"),
    (r"[THINK]\boxed{4}", None),
    (r"<think>\boxed{4}</think>\boxed{5}<think>wait", None),
    (r"thinking that began in the prompt: \boxed{4}</think>\boxed{5}", "5"),
    (r"\boxed{x = \boxed{7}}", "7"),
    (r"\boxed{\boxed{7} + 1}", "7 + 1"),
    (r"\boxed{\frac{\boxed{3}}{\fbox{4}}}", r"\frac{3}{4}"),
    (r"\boxed{\text{not } \boxed{7}}", r"\text{not } 7"),
    (r"\boxed{\boxed{3}, \boxed{4}}", "4"),
]


@pytest.mark.parametrize(("response", "expected"), EXTRACTED)
def test_the_answer_is_what_the_last_box_or_tag_holds(response: str, expected: str | None) -> None:
    assert extract(response) == expected


EQUATIONS = r"\boxed{x = \frac{1}{2}, x = \frac{-1 \pm \sqrt{13}}{4}}"

RIGHT = [
    ("5", r"\boxed{5}"),
    ("5", r"\boxed{4} no, \boxed{5}"),
    ("5", "<answer>5</answer>"),
    ("5", r"\boxed{+5}"),
    ("5", r"\boxed{5.0}"),
    ("5", r"\boxed{5.}"),
    ("5", r"\boxed{x=5}"),
    ("x=5", r"\boxed{5}"),
    ("-3", r"\boxed{−3}"),
    ("-3", r"\boxed{-3}"),
    ("007", r"\boxed{7}"),
    ("12.50", r"\boxed{12.5}"),
    ("0.5", r"\boxed{.5}"),
    ("1250", r"\boxed{1,250}"),
    ("1,250", r"\boxed{1250}"),
    ("1250", r"\boxed{1{,}250}"),
    ("1000", r"\boxed{1\,000}"),
    ("1234567.5", r"\boxed{1,234,567.50}"),
    ("40", r"\boxed{$40}"),
    ("40", r"\boxed{\$40}"),
    ("40", r"\boxed{\$40.00}"),
    ("$40$", r"\boxed{40}"),
    ("40", r"\boxed{40\%}"),
    ("40", r"\boxed{40^\circ}"),
    ("40", r"\boxed{\text{40}}"),
    ("40", r"\boxed{40\text{ dollars}}"),
    ("40", r"\boxed{40 \text{ cm}^2}"),
    ("40", r"\boxed{40\,\mathrm{km}}"),
    (r"\frac{1}{2}", r"\boxed{\frac{1}{2}}"),
    (r"\frac{1}{2}", r"\boxed{\dfrac12}"),
    (r"\frac{1}{2}", r"\boxed{0.5}"),
    ("1/2", r"\boxed{\frac{2}{4}}"),
    ("0.5", r"\boxed{1/2}"),
    (r"\sqrt{8}", r"\boxed{2\sqrt{2}}"),
    ("2^{10}", r"\boxed{1024}"),
    ("x+1", r"\boxed{1 + x}"),
    ("(x+1)^2", r"\boxed{x^2 + 2x + 1}"),
    ("(1,2)", r"\boxed{(1, 2)}"),
    ("[1,2]", r"\boxed{[1, 2]}"),
    (r"(-\infty,3]", r"\boxed{(-\infty, 3]}"),
    (r"\{1,2\}", r"\boxed{\{2, 1\}}"),
    (r"1,2", r"\boxed{2, 1}"),
    ("C", r"\boxed{C}"),
    ("C", r"\boxed{(C)}"),
    (r"\text{(C)}", r"\boxed{C}"),
    ("Paris", r"\boxed{Paris}"),
    ("Paris", r"\boxed{\text{Paris}}"),
    ("blue", r"\boxed{Blue}"),
    ("$12:00$", r"\boxed{12:00}"),
    ("C", r"\boxed{\textbf{(C)}}"),
    ("C", r"\boxed{\text{(C) } 12}"),
    ("C", r"\boxed{C. 12}"),
    ("(C)", r"\boxed{Option C}"),
    (r"\textbf{(E)}\ \text{not enough information}", r"\boxed{E}"),
    (r"\textbf{(C)} \text{cannot be determined}", r"\boxed{C}"),
    (r"\textbf{(C)} \text{cannot be determined}", r"\boxed{\text{(C) cannot be determined}}"),
    ("C. Both statements are wrong", r"\boxed{C}"),
    ("C. Both statements are wrong", r"\boxed{(C) Both statements are wrong}"),
    ("12", r"\boxed{12\text{ marbles}}"),
    ("12", r"\boxed{12~\text{red marbles}}"),
    ("1250", r"\boxed{1{,}250\text{ people}}"),
    (r"\boxed{12}", r"\boxed{12}"),
    (r"We add them, which gives $\boxed{12}$.", r"\boxed{12}"),
    ("4, 7", r"\boxed{4} and \boxed{7}"),
    ("$(1,2),(2,1)$", r"\[\boxed{(2, 1)}, \quad \boxed{(1, 2)}\]"),
    (r"$$x = \frac{1}{2}, x = \frac{-1 \pm \sqrt{13}}{4}$$", EQUATIONS),
]

WRONG = [
    (r"\textbf{(E)}\ \text{not enough information}", r"\boxed{D}"),
    ("C. Both statements are wrong", r"\boxed{(B) Both statements are wrong}"),
    ("C. Both statements are wrong", r"\boxed{(C) One statement is wrong}"),
    ("5", "I considered 5 but I do not know"),
    ("5", r"\boxed{I considered 5 but I do not know}"),
    ("5", r"\boxed{not 5}"),
    ("5", r"\boxed{5} no, \boxed{4}"),
    ("5", r"\boxed{5 or 6}"),
    ("6", r"\boxed{5 or 6}"),
    ("3", r"\boxed{1, 2, 3}"),
    ("5", r"\boxed{-5}"),
    ("5", r"\boxed{5.01}"),
    ("5", r"\boxed{55}"),
    ("5", r"\boxed{}"),
    ("5", r"\boxed{5"),
    ("5", ""),
    ("1250", r"\boxed{1,25}"),
    ("1.5", r"\boxed{1, 5}"),
    ("1.125", r"\boxed{1,125}"),
    ("12", r"\boxed{12 or maybe 13, I do not know}"),
    (r"\frac{1}{3}", r"\boxed{0.33}"),
    (r"\sqrt{2}", r"\boxed{1.41}"),
    ("(1,2)", r"\boxed{(2,1)}"),
    ("[1,2]", r"\boxed{(1,2)}"),
    (r"\{1,2\}", r"\boxed{\{1,3\}}"),
    ("x+1", r"\boxed{x+2}"),
    ("C", r"\boxed{B}"),
    ("Paris", r"\boxed{London}"),
    ("3", r"\boxed{\text{three}}"),
    ("5", r"\boxed{" + "1" * 100 + "}"),
    ("5", r"\boxed{" + "1" * 5000 + "}"),
    ("Paris", r"\boxed{pairs}"),
    ("no", r"\boxed{on}"),
    ("listen", r"\boxed{\text{silent}}"),
    ("10:30", r"\boxed{20:60}"),
    ("5", r"\boxed{5 thousand}"),
    ("3", r"\boxed{3 minus one}"),
    ("5", r"\boxed{5 is wrong}"),
    ("C", r"\boxed{(B) 12}"),
    ("C", r"\boxed{C or D}"),
    ("5", r"\boxed{5\text{ thousand}}"),
    ("5", r"\boxed{5\text{ or more}}"),
    ("3", r"\boxed{3\text{ minus one}}"),
    ("4, 7", r"\boxed{4} is too small, \boxed{7}"),
    ("1234", r"\boxed{1}, \boxed{234}"),
    ("4", r"\boxed{4} or \boxed{7}"),
    ("7", r"\boxed{4} or \boxed{7}"),
    ("4", r"<think>\boxed{4}</think> I cannot tell."),
]

KEPT = [
    ("1,5", r"\boxed{1.5}", 0.0),  # a comma in the ground truth is a list of two
    ("x=1, y=2", r"\boxed{(1, 2)}", 1.0),  # a point, in the order of the names
    ("x < 1 or x > 2", r"\boxed{x < 1 and x > 2}", 1.0),  # a list of two conditions
    (r"\frac{1}{3}", r"\boxed{0.33}", 0.0),  # rounded is not equal
    ("4, 10, -2", r"\boxed{10, 4, -2}", 1.0),  # a list has no order
    ("f(x)", r"\boxed{f(y)}", 0.0),  # another variable is another function
    ("$9$", r"\boxed{  9  }", 1.0),  # blanks say nothing
    ("10455", r"So \boxed{255}. Final answer: 10455", 0.0),  # the box counts, not the prose
    ("(3,3), (1,1)", r"\boxed{(3,3)} is it, then \boxed{(1,1)}", 0.0),  # not one list
    ("forty two", r"\boxed{42}", None),  # nobody has read the words as a number
    ("forty two", r"\boxed{Forty two}", 1.0),
    ("Answer is blue.", r"\boxed{Answer is blue.}", 1.0),  # the same words
    ("x \\in [-2,7]", r"\boxed{-2 \le x \le 7}", 1.0),  # the same set, otherwise written
    ("[-2,7]", r"\boxed{-2 < x < 7}", 0.0),
    ("10{,}000", r"\boxed{10000}", 1.0),  # separators say nothing
]
"""Where public collections of cases say otherwise (docs/verification.md)."""

LISTS = [
    ("1, 2", "1 and 2", 1.0),
    ("1, 2", r"2 \text{ or } 1", 1.0),
    ("1; 2; 3", "3, 1, and 2", 1.0),
    ("1 and 2", r"\{2, 1\}", 1.0),
    ("1, 2", "$1$ and $2$", 1.0),
    ("x=1 or x=2", "1; 2", 1.0),
    ("1000 and 2000", "1,000 and 2,000", 1.0),
    ("1,000; 2,000", "2000, 1000", 1.0),
    ("(1,2),(3,4)", "(3,4) and (1,2)", 1.0),
    (r"\pm 3", "3 and -3", 1.0),
    ("[1;2]", "[1,2]", 1.0),
    ("1 and 2", "12", 0.0),
    ("12", "1 and 2", 0.0),
    ("(1,2);(3,4)", "(2,1),(3,4)", 0.0),
    ("(1;2)", "(2;1)", 0.0),
    ("1, 2", "1, 2 and 3", 0.0),
    ("1 and 2", "1", 0.0),
    ("5, 6", "between 5 and 6", 0.0),
    ("5, 6", "the sum of 5 and 6", 0.0),
    ("5", "I think it is 5 and not 6", 0.0),
    ("p=5,q=2;p=7,q=3", r"p=7,q=3 \text{ and } p=5,q=2", 1.0),
    ("p=5,q=2;p=7,q=3", "(7,3), (5,2)", 1.0),
    ("p=5,q=2;p=7,q=3", "p=5,q=3;p=7,q=2", 0.0),
    ("p=5,q=2,p=7,q=3", "p=5,q=3,p=7,q=2", 0.0),
    ("p=5,q=2;p=7,q=3", "p=5,q=2", 0.0),
    (r"(-\infty,1)\cup(2,\infty)", "x < 1 or x > 2", 1.0),
    ("(1,3)", r"x > 1 \text{ and } x < 3", 1.0),
    ("-1 < x < 1", "|x| < 1", 1.0),
    ("x<1 or x>3", "x<1 or x>2", 0.0),
    ("x > 3", "y > 3", 0.0),
    ("x > 1", r"\sin(x) > 1 or x < 2", 0.0),
    ("y_1 = x, y_2 = x+1", r"$y_1 = \boxed{x}$ and $y_2 = \boxed{1+x}$", 1.0),
    ("(3,3), (1,1)", r"\boxed{(3,3)} \text{ for part (a) and } \boxed{(1,1)}", 1.0),
    (r"\boxed{3} apples and \boxed{4} pears", "3, 4", 1.0),
    ("4 or 7", r"\boxed{4} or \boxed{7}", 1.0),
    ("3, 4", r"\boxed{3} is wrong and \boxed{4}", 0.0),
    ("2, 3", r"\text{2 and 3}", 1.0),
    ("1, 2; 3, 4", "3, 4; 1, 2", 1.0),
    ("1, 2; 3, 4", "1, 3; 2, 4", 0.0),
    ("1,000; 2,000", "2,000; 1,000", 1.0),
    ("A, C", "(C) and (A)", 1.0),
    ("A, C", "A, B", 0.0),
    ("x, y", "y and x", 1.0),
    ("(1,3)", "x > 1, x < 3", 1.0),
    (r"x \in (-\infty,2)\cup(3,\infty)", r"x > 3 \text{ or } x < 2", 1.0),
    (r"x \in (-\infty,2)\cup(3,\infty)", r"x > 3 \text{ or } x < 1", 0.0),
    (r"\mathbb{R} \setminus \{0\}", r"x \neq 0", 1.0),
    ("k > 4 or k < -4", "|k| > 4", 1.0),
    ("3, 3, 5", "5, 3, 3", 1.0),
    ("3, 3, 5", "3, 5, 5", 0.0),
    ("1, 2", "1, 2, 2", 0.0),
    ("1, 1, 2", "1, 2", 0.0),
    ("2, 2", "2", 0.0),
    ("1, -1, 1", r"\pm 1, 1", 1.0),
    ("1, -1", r"\pm 1, 1", 0.0),
    ("2, 2", "2, 4/2", 1.0),
    ("x=1, x=1, x=2", "1, 2, 2", 0.0),
    ("x=1, x=1, x=2", "1, 1, 2", 1.0),
    ("1 and 1 and 2", "1, 2, 2", 0.0),
    (r"\{1, 1, 2\}", r"\{1, 2\}", 1.0),
    ("(1,2), (1,2), (3,4)", "(1,2), (3,4), (3,4)", 0.0),
    ("x=1, y=2", "1, 2", 1.0),
    ("x=1, y=2", "2, 1", 0.0),
    ("x=1, y=2", "2 and 1", 0.0),
    ("x=1, y=2", r"\{2, 1\}", 0.0),
    ("x=1, y=2", r"\boxed{2} and \boxed{1}", 0.0),
    ("x=1, y=2", "y=2, x=1", 1.0),
    ("m=3 and b=4", "3, 4", 1.0),
    ("m=3 and b=4", "4; 3", 0.0),
    ("x=1, y=2, z=3", "3, 2, 1", 0.0),
    ("x=1, x=2", "2, 1", 1.0),
    ("1, 2", "y=1, x=2", 1.0),
    ("(1,234)", "(1, 234)", 1.0),
    ("(1,234)", "1234", 0.0),
    ("1234", "(1,234)", 0.0),
    ("1234", r"\left(1,234\right)", 0.0),
    ("1234", "[1,234]", 0.0),
    ("100200", "(100,200)", 0.0),
    ("3.5", "(3,5)", 0.0),
    ("1234", "(1234)", 1.0),
    ("100, 200, 300", "100,200,300", 1.0),
    ("100, 200, 300", "300,200,100", 1.0),
    ("100, 200, 300", "100,200", 0.0),
    ("100200300", "100, 200, 300", 0.0),
    ("1000, 2000", "1,000, 2,000", 1.0),
    ("1,000, 2,000", "2000, 1000", 1.0),
    ("1,000, 2,000", "0, 1, 2", 0.0),
    ("500, 1500", "500, 1,500", 1.0),
    ("0, 100, 200", "0, 100,200", 1.0),
    ("0, 100,200", "200, 100, 0", 1.0),
    (r"\{100, 200\}", r"\{100,200\}", 1.0),
    ("(1, 2)", "1, 2", 1.0),
    ("(1, 2)", "2, 1", 0.0),
    ("(1, 2)", "1; 2", 1.0),
    ("(1, 2)", "1 and 2", 1.0),
    ("(1, 2)", "1, 2, 3", 0.0),
    ("(1, 2)", r"\{1, 2\}", 0.0),
    ("(1,2,3)", "1,2,3", 1.0),
    ("(1/2, -2)", "0.5, -2", 1.0),
    (r"\left(\frac{1}{2}, \sqrt{3}\right)", r"\frac12, \sqrt 3", 1.0),
    ("[1,2]", "1, 2", 1.0),
    ("(1, 2]", "1, 2", 0.0),
    ("(1,2), (3,4)", "1, 2, 3, 4", 0.0),
    ("1, 2", "(1, 2)", 0.0),
]

NOTATIONS = [
    ("0.5", "½", 1.0),
    ("2½", "2.5", 1.0),
    ("2 1/2", "5/2", 1.0),
    ("21/2", "2 1/2", 0.0),
    ("-5", "–5", 1.0),
    ("5", "５", 1.0),
    ("x^2", "x²", 1.0),
    (r"2\sqrt{3}", "2√3", 1.0),
    (r"\infty", "∞", 1.0),
    ("6", "2·3", 1.0),
    ("100000", "1e5", 1.0),
    ("0.001", "1e-3", 1.0),
    ("100000", "1e4", 0.0),
    ("300000", "3 x 10^5", 1.0),
    ("2**10", "1024", 1.0),
    (r"0.\overline{3}", r"\frac13", 1.0),
    (r"0.1\overline{6}", "1/6", 1.0),
    (r"\bigl[0,1\bigr)", "[0,1)", 1.0),
    (r"\emptyset", r"\varnothing", 1.0),
    (r"\sin 30^\circ", "1/2", 1.0),
    ("3+4i", r"3+4\cdot i", 1.0),
    ("5", "5=x", 1.0),
    ("5", "**5**", 1.0),
    ("Paris", '"Paris"', 1.0),
    ("Paris", "Paris!", 1.0),
    ("5", r"\text{The answer is }5", 1.0),
    ("(B)", "The answer is (B)", 1.0),
    ("B", "(b)", 1.0),
    ("b", "B", 0.0),
    ("B", "(B) and (C)", 0.0),
    ("A", "A man", 0.0),
    ("5", r"\fbox{5}", 1.0),
    ("x < 3", "x < 3.", 1.0),
    ("0.5", ".5", 1.0),
    ("5", ".5", 0.0),
    (".5", "5", 0.0),
    ("25", "$.25$", 0.0),
    ("5", "5..", 0.0),
    ("0.3", "0.3...", 0.0),
    ("x", "x...", 0.0),
    ("Paris", "Paris.", 1.0),
    ("5", "5 cm.", 1.0),
    ("x+.5", "x+5", 0.0),
    ("5", "$5.$", 1.0),
    ("5", "$5$.", 1.0),
    ("5", "2+3=5", 1.0),
    ("5", "2+2=5", 0.0),
    ("5", "3=5", 0.0),
    ("5", "0=5", 0.0),
    ("5", "3=4=5", 0.0),
    ("5", "m+n=5", 1.0),
    ("5", "f(2)+g(3)=5", 1.0),
    ("3.33", "10/3=3.33", 1.0),
    ("3.33", "11/3=3.33", 0.0),
    ("3 hours", r"60 \cdot 3 = 180\text{ minutes}", 1.0),
    ("2, 5", "2, 3=5", 0.0),
    ("1:2", "2:4=1:2", 1.0),
    ("1:2", "1:3=1:2", 0.0),
    ("4.5", r"3^2\frac12", 1.0),
    ("9.5", r"3^2\frac12", 0.0),
    ("3", r"3!\frac12", 1.0),
    ("6.5", r"3!\frac12", 0.0),
    ("10", r"4 \times 2\frac12", 1.0),
    ("4", r"4 \times 2\frac12", 0.0),
    ("-2.5", r"-2\frac12", 1.0),
]

QUANTITIES = [
    ("50%", "0.5", 1.0),
    ("0.5", r"50\%", 1.0),
    ("50%", "5%", 0.0),
    ("50", "0.5", 0.0),
    ("1.5", "1,5", 1.0),
    ("1000.99", "1000,99 €", 1.0),
    ("15", "1,5", 0.0),
    ("-5", "-$5", 1.0),
    ("5", "USD 5", 1.0),
    ("12", "12 m/s^2", 1.0),
    ("12 cm", "12 mm", 0.0),
    ("1 m", r"100\text{ cm}", 1.0),
    ("2 hours", "120 minutes", 1.0),
    ("12 cm^2", "12 cm", 0.0),
    ("3:30 pm", "3:30 p.m.", 1.0),
    ("3:30 pm", "3.30 pm", 1.0),
    ("3:30 pm", "3.30 am", 0.0),
    ("3:30 pm", "3.03 pm", 0.0),
    ("15:30", "15h30", 1.0),
    ("15 h 30", "15:30", 1.0),
    ("15:30", "15h03", 0.0),
    ("15:30", "15.30", 0.0),
    ("15.30", "15:30", 0.0),
    ("15 h 30 min", "15h30", 1.0),
    ("-5", "minus 5", 1.0),
    ("-5", "Negative 5", 1.0),
    ("-5", "menos 5", 1.0),
    ("-0.5", "minus .5", 1.0),
    ("5", "minus 5", 0.0),
    ("-5", "minus 6", 0.0),
    ("3", "8 minus 5", 0.0),
    ("-5", "not minus 5", 0.0),
    ("3:30", "03:30", 1.0),
    ("9:15 p.m.", r"9{:}15\text{ p.m.}", 1.0),
    ("8:00 AM", "8 am", 1.0),
    ("10:05 am", "10:05 pm", 0.0),
    ("2024-01-05", "2024-1-5", 1.0),
    ("2020-2021", "2020–2021", 1.0),
    ("2", "5–3", 0.0),
    ("14-03-2024", "14/03/2024", 1.0),
    ("14-03-2024", "2024-03-14", 1.0),
    ("14-03-2024", "14 March 2024", 1.0),
    ("03-14-2024", "March 14, 2024", 1.0),
    ("14-03-2024", "-2013", 0.0),
    ("14-03-2024", "14-03-2023", 0.0),
    ("05-03-2024", "05/03/2024", 1.0),
    ("05/03/2024", "5/3/2024", 1.0),
    ("05-03-2024", "03/05/2024", 0.0),
    ("05-03-2024", "-2022", 0.0),
    ("05-03-2024", "5 March 2024", 0.0),
    ("-2013", "14-3-2024", 1.0),
    ("2024-01-05", "2018", 0.0),
    ("2024-01-05", "2024-05-01", 0.0),
    ("101_2", "101_{2}", 1.0),
    ("101_2", "101_3", 0.0),
    ("5", "5 or more", 0.0),
    ("5 or more", "5", 0.0),
    ("5", "The answer is not 5", 0.0),
    (r"\frac12", "0,5", 1.0),
    ("3/2", "1,5", 1.0),
    ("1500 m", "1,5 km", 1.0),
    ("12", "12,00 €", 1.0),
    ("€86,780.25", "86.780,25 €", 1.0),
    ("€86,780.25", "86.780,52 €", 0.0),
    ("12", "12,0", 0.0),
    ("1/8", "0,125", 1.0),
    (r"\frac{9}{8}", "1,125", 0.0),
    ("9000/8", "1,125", 1.0),
    ("1125", "1,125", 1.0),
    (r"\sqrt2", "1,4142136", 1.0),
    ("0.5x", "0,5x", 1.0),
    ("x=2.5", "x=2,5", 1.0),
    ("x<1.5", "x<1,5", 1.0),
    (r"2.5\,\text{kg}", r"2,5\,\text{kg}", 1.0),
    (r"1,\, 2", r"2,\;1", 1.0),
    ("1.5", r"\frac{4,5}{3}", 1.0),
    ("1234.567", "1234,567", 1.0),
    ("-1.5", "-1,5", 1.0),
    (r"\pm 1.5", "1,5", 0.0),
    ("1, 5", "1.5", 0.0),
    ("1.5", "1,5,0", 0.0),
    ("March 14, 2025", "March 14,2025", 1.0),
    ("2025-03-14", "March 14,2025", 1.0),
]


@pytest.mark.parametrize(("gold", "answer", "reward"), LISTS + NOTATIONS + QUANTITIES)
def test_an_answer_is_judged_by_what_it_means_and_not_by_how_it_is_written(
    gold: str, answer: str, reward: float
) -> None:
    response = answer if "box{" in answer else rf"\boxed{{{answer}}}"
    assert check_gold(gold) is None
    assert judge(gold, response).reward == reward


PAGE = (ROOT / "docs/verification.md").read_text()
ROWS = re.findall(r"^\| (`.*) where the ground truth is (.*`.*?) \| (right|wrong)", PAGE, re.M)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_page_says_what_is_right_beside_a_ground_truth(row: tuple[str, str, str]) -> None:
    answers, golds = (re.findall("`([^`]+)`", part) for part in row[:2])
    for gold in golds:
        for answer in answers:
            assert judge(gold, rf"\boxed{{{answer}}}").reward == (row[2] == "right")


@pytest.mark.parametrize(("gold", "response"), RIGHT)
def test_a_right_answer_earns_1(gold: str, response: str) -> None:
    assert judge(gold, response).reward == 1.0


@pytest.mark.parametrize(("gold", "response"), WRONG, ids=[f"{g}-{r[:40]}" for g, r in WRONG])
def test_a_wrong_or_missing_answer_earns_0(gold: str, response: str) -> None:
    assert judge(gold, response).reward == 0.0


@pytest.mark.parametrize(("gold", "response", "reward"), KEPT)
def test_what_is_judged_otherwise_than_elsewhere_on_purpose(
    gold: str, response: str, reward: float | None
) -> None:
    assert judge(gold, response).reward == reward


@pytest.mark.parametrize(
    ("answer", "response"),
    [
        ("5", r"\boxed{5}"),
        (r"so \boxed{5}", r"so \boxed{5}"),
        (r"Therefore $x \geq 5$ is the solution.", r"\boxed{x \geq 5}"),
        ("It costs 12 or, rather, 1,250.75 dollars.", r"\boxed{1,250.75}"),
        ("Final Answer: The largest $n$ is 34. I hope it is correct. $7$", r"\boxed{34}"),
        (r"\frac{1}{2}", r"\boxed{\frac{1}{2}}"),
        ("Paris", r"\boxed{Paris}"),
        (r"<think>\boxed{4}</think>5", r"\boxed{5}"),
        ("It comes to 2,74 in all.", r"\boxed{2,74}"),
        ("The answer is 5, not 6.", r"\boxed{5}"),
        ("The answer is $5$ and not $6$.", r"\boxed{5}"),
        ("Die Antwort ist 5, nicht 6.", r"\boxed{5}"),
        ("It is 5 (see page 12)", r"\boxed{5}"),
        ("It is (5).", r"\boxed{5}"),
        ("5 oder 6", r"\boxed{5 oder 6}"),
        ("La respuesta es 5 o 6.", r"\boxed{5 o 6}"),
        ("The answer is 5 or 6.", r"\boxed{5 or 6}"),
        ("Die Lösung ist $x=5$ oder $x=6$.", r"\boxed{$x=5$ oder $x=6$}"),
        ("There are 3 apples and 4 pears.", r"\boxed{3 apples and 4}"),
    ],
)
def test_a_bare_answer_is_boxed_and_found_in_prose(answer: str, response: str) -> None:
    assert bare(answer) == response


@pytest.mark.parametrize(
    ("gold", "answers"),
    [
        ("1250", ["1,250", "1250", r"\$1250", "1250.0"]),
        (r"\frac{1}{2}", [r"\frac{1}{2}", "0.5", r"\frac{2}{4}", "1/2"]),
        (r"\sqrt{8}", [r"2\sqrt{2}", r"\sqrt{8}"]),
        ("A", ["B", "(B)", r"\text{(B)}", "The answer is B"]),
        ("3:30", ["4:30", "04:30"]),
        ("3", ["1/2", "½", r"\frac12"]),
    ],
)
def test_equal_answers_share_a_normal_form_for_majority_votes(
    gold: str, answers: list[str]
) -> None:
    assert len({judge(gold, rf"\boxed{{{answer}}}").answer for answer in answers}) == 1


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("0.20833333333333334", "0.20833333333333334"),
        ("24/5", "4.8"),
        ("-1/2", "-0.5"),
        ("1/3", "1/3"),
        ("100.10", "100.1"),
        ("2^{-21}", "1/2097152"),
    ],
)
def test_numbers_are_shown_as_decimals_where_they_have_one(written: str, shown: str) -> None:
    assert judge("5", rf"\boxed{{{written}}}").answer == shown


def test_different_answers_have_different_normal_forms() -> None:
    answers = ["4", "-4", "0.4", r"\frac{1}{4}", "x+4", "(1,4)", "four", "Paris", "pairs"]
    assert len({judge("5", rf"\boxed{{{answer}}}").answer for answer in answers}) == len(answers)


@pytest.mark.parametrize("gold", ["", "  ", "$", r"\text{}", "()"])
def test_a_ground_truth_that_nothing_can_be_compared_with_is_told(gold: str) -> None:
    assert check_gold(gold)
    assert judge(gold, r"\boxed{1}").reward is None


@pytest.mark.parametrize("gold", [gold for gold, _ in RIGHT])
def test_a_ground_truth_that_answers_can_meet_is_no_trouble(gold: str) -> None:
    assert check_gold(gold) is None


def test_a_ground_truth_of_thousands_of_digits_raises_nothing() -> None:
    gold = "1" * 5000
    assert check_gold(gold) is None or isinstance(check_gold(gold), str)
    assert judge(gold, rf"\boxed{{{gold}}}").reward in (1.0, None)


@pytest.mark.parametrize(
    "response",
    [
        r"\boxed{" * 30_000 + "4" + "}" * 30_000,
        r"\boxed{4} and " * 20_000,
        "<think>" * 50_000,
        r"\boxed{" * 30_000,
        "<answer>" * 5_000,
        "{" * 200_000,
        "}" * 200_000,
        r"\boxed{" + "{}" * 99,
        r"\boxed{5 " + ", " * 20_000 + "6}",
        r"\boxed{5" + " and" * 2_000 + " 6}",
        r"\boxed{6. \overline{" + "3" * 5000 + "}}",
    ],
)
def test_a_long_malformed_response_is_judged_without_delay(response: str) -> None:
    started = time.thread_time()
    assert judge("5", response).reward == 0.0
    assert time.thread_time() - started < 10


@pytest.mark.parametrize(
    "tower",
    ["x^{x^{4}}", "x^{x^{x^{4}}}", "x^{" * 8 + "4" + "}" * 8, "x^{387420489}", r"\log(x^{x^5})"],
)
def test_a_tower_of_powers_is_compared_without_delay(tower: str) -> None:
    started = time.thread_time()
    assert judge("x + 1", rf"\boxed{{{tower}}}").reward == 0.0
    assert judge(tower, rf"\boxed{{{tower} + x}}").reward == 0.0
    assert judge(tower, rf"\boxed{{{tower}}}").reward == 1.0
    assert time.thread_time() - started < 10


def test_brackets_that_nobody_nests_so_deep_are_not_read() -> None:
    some, many = (r"\frac{1}{" * depth + "2" + "}" * depth for depth in (8, 41))
    assert judge(some, rf"\boxed{{{some} + 0}}").reward == 1.0
    assert parsing.parse(many) is None


TAGS = ("<answer>", "</answer>", "<think>", "</think>", "[THINK]", "[/THINK]", "\\fbox{")
BOXES = ("\\boxed{", "\\boxed", "boxed", "\\frac", "42", "007", "So ")
PIECES = st.sampled_from([*"0123456789-+ .,\nx{}$%", *BOXES, *TAGS])


@given(
    gold=st.one_of(st.integers(-(10**16), 10**16).map(str), st.lists(PIECES).map("".join)),
    said=st.lists(PIECES).map("".join),
    found=st.one_of(st.integers(-99, 99).map(str), st.lists(PIECES, max_size=4).map("".join)),
    after=st.lists(PIECES, max_size=4).map("".join),
    same=st.booleans(),
)
def test_what_is_judged_at_once_is_judged_as_it_would_be_in_a_worker(
    gold: str, said: str, found: str, after: str, same: bool
) -> None:
    response = f"{said}\\boxed{{{gold if same else found}}}{after}"
    verdict = at_once(gold, response)
    assert verdict is None or verdict == judge(gold, response)


def test_the_reason_for_a_verdict_on_a_long_answer_can_be_read() -> None:
    assert len(judge("5", r"\boxed{" + "x + " * 500 + "x}").reason) < 300


def test_whole_numbers_are_judged_at_once_and_nothing_else() -> None:
    for found, reward in (("4", 1.0), ("5", 0.0), ("-4", 0.0), ("04", 1.0)):
        verdict = at_once("4", f"so \\boxed{{{found}}}.")
        assert verdict is not None
        assert verdict.reward == reward
    for response in (
        "4",
        r"\boxed{4.0}",
        r"\boxed{\frac{8}{2}}",
        r"\boxed{4} \boxed{4}",
        "\\boxed{4",
    ):
        assert at_once("4", response) is None
    assert at_once("x", r"\boxed{4}") is None
