r"""Where the argument of a function ends that has no brackets: `\sin x \cdot y` is sin(x)·y.

The parser takes every factor behind a function into its argument, behind braces too, so that it
reads `\ln{(6)} \cdot \frac12`, as SymPy prints it, as ln 3. A sign of a product ends an argument
here, and so does a bar of division, but for what is an angle: `\cos 2\pi/3`, `\tan\theta/2`.
"""

from __future__ import annotations

import re

GROUP = r"\{(?:[^{}]|\{[^{}]*\})*\}"
NAMES = r"(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?|ln|lg|log|exp"
FUNCTION = re.compile(
    rf"\\({NAMES})(?![a-zA-Z])(?:\s*_\s*(?:{GROUP}|\w))?(?:\s*\^\s*(?:{GROUP}|\w))?\s*"
)
AS_TEXT = re.compile(rf"\\(?:operatorname\*?|mathrm|text)\s*\{{\s*(a(?=[sct]))?({NAMES})\s*\}}")
BRACKET = re.compile(r"(?:\\left\s*)?\(")
STEP = re.compile(
    r"(?P<open>\\left\s*(?:\\[a-z]+|\S)|\\lvert(?![a-zA-Z])|[({\[])"
    r"|(?P<close>\\right\s*(?:\\[a-z]+|\S)|\\rvert(?![a-zA-Z])|[)}\]])"
    r"|(?P<bar>\|)|(?P<product>\\(?:cdot|times)(?![a-zA-Z])|\*(?=\s*\\))|(?P<over>/)"
    rf"|(?P<end>[-+=<>,;&≤≥]|\\\\|\\(?:{NAMES}|leq?|geq?|pm|mp|quad|text|to|in)(?![a-zA-Z]))"
)


def with_brackets(text: str) -> str:
    """Returns a formula with brackets around each argument of which a parser would read more."""
    text = AS_TEXT.sub(lambda match: f"\\{'arc' if match[1] else ''}{match[2]} ", text)
    at = 0
    while (match := FUNCTION.search(text, at)) is not None:
        at = match.end()
        end = _end(text, at, match[1])
        if end is not None:
            argument = text[at:end]
            if argument.startswith("{"):
                argument = argument[1:-1].strip()
            if not BRACKET.match(argument):
                argument = rf"\left({argument}\right)"
            text = text[:at] + argument + text[end:]
    return text


def _end(text: str, at: int, name: str) -> int | None:
    """Returns where the argument ends that begins there; None where a parser finds its end."""
    if text[at : at + 1] in ("_", "^") or BRACKET.match(text, at):
        return None
    depth, bars = 0, 0
    enclosed = re.match(r"[{\[|]|\\l", text[at:]) is not None
    for step in STEP.finditer(text, at + (text[at : at + 1] == "-")):
        kind = step.lastgroup
        if kind == "bar" and depth == 0 and text[at : step.start()].strip():
            return None
        bars += kind == "bar"
        opens = kind == "open" or (kind == "bar" and bars % 2)
        depth += 1 if opens else -(kind in ("bar", "close"))
        if depth < 0:
            return None
        if depth or opens:
            continue
        if kind in ("bar", "close") and enclosed:
            raised = re.match(r"\s*[\^_]", text[step.end() :])
            return None if raised and not BRACKET.match(text[at:].lstrip("{ ")) else step.end()
        if kind == "product" or (kind == "over" and not _is_angle(text, at, step, name)):
            return step.start()
        if kind == "end":
            return None
    return None


def _is_angle(text: str, at: int, bar: re.Match[str], name: str) -> bool:
    """Whether what stands over a bar is an angle together with what stands below: θ/2, nπ/L."""
    logarithm = name in ("ln", "lg", "log", "exp")
    below = text[bar.end() :].lstrip()
    return "\\pi" in text[at : bar.start()] or (not logarithm and below[:1].isdigit())
