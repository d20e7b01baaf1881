"""Words that name an answer, deny it, doubt it or bound it, in the languages of `notation.JOINTS`.

A cell of the table is a pattern. Its words are whole words in scripts that have spaces between
them, and stand anywhere in Chinese, Japanese and Korean.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Words(NamedTuple):
    """The words of a language."""

    answer: str
    """What an answer is called: "the final answer"."""
    that: str
    """What points back to one: "that"."""
    be: str
    """What stands between it and the words about it: "is"."""
    within: str
    """What stands before a box that is mentioned and holds nothing: "in"."""
    wait: str
    """What says that a sentence is about the answer before it: "wait"."""
    slip: str
    """What takes an answer back whatever follows: "I made a mistake"."""
    wrong: str
    """What is said of an answer that is taken back: "wrong", "not right"."""
    denied: str
    """What denies the words behind it: "not"."""
    doubt: str
    """What leaves an answer open wherever it stands: "perhaps"."""
    bound: str
    """What makes a bound of a number: "at least"."""
    check: str
    """What says that an answer is checked: "check"."""
    about: str
    """What makes an approximation of a number: "about"."""
    otherwise: str
    """What says that another answer follows which may hold as well: "alternatively"."""


SPACED = (
    Words(  # English
        r"(?:(?:the|my)\s+)?(?:(?:final|correct|right|best|most\s+(?:likely|fitting|appropriate"
        r"|suitable))\s+)*(?:answer|label|category|class|intent|output|result|prediction"
        r"|classification)",
        "that|this|it|which", "is|was|s|be|seems|looks",
        r"(?:in|inside|into|within|with|using)(?:\s+(?:the|an?))?",
        r"wait|hold\s+on|hmm+|actually|oops|sorry|correction|but|no|not\s+sure|unsure",
        r"I\s+(?:made\s+(?:a\s+mistake|an\s+error)|was\s+wrong|misread)|scratch\s+that"
        r"|(?:should|must)\s+(?:instead\s+be|(?:be|have\s+been)\s+.{0,30}\binstead)",
        r"(?:wrong|incorrect|false|mistake|error|(?:not|cannot|\w+n['’]t)\s+(?:[a-z]+\s+){0,2}?"
        r"(?:right|correct|true|possible|valid|work|hold|answer|solution))(?!\s+(?:that|to)\b)",
        r"not|cannot|\w+n['’]t|neither|nor|never|rather\s+than|instead\s+of",
        r"wrong|incorrect|mistake|maybe|perhaps|possibly|unlikely|unsure|not\s+(?:sure|certain)"
        r"|except|unless|ruled?\s+out",
        r"more|less|fewer|least|most|than|ago|(?:below|above|under|m(?:in|ax)imum)(?=\W*\Z)",
        r"check\w*", r"about|approx(?:imately|\.)?|roughly|around|circa|nearly|almost",
        r"(?:or\s+)?(?:alternatively|otherwise|else|second|third)",
    ),
    Words(  # German
        r"(?:(?:die|das|der|meine?)\s+)?(?:(?:endgültige|richtige)\s+)*(?:Antwort|Lösung|Ergebnis)",
        "das|dies|es", "ist|war|lautet", r"(?:in|innerhalb|mit)(?:\s+(?:de[mnr]|einem))?",
        "Moment|halt|warte|nein|aber|doch|Korrektur|Berichtigung",
        r"habe\s+(?:mich\s+(?:geirrt|verrechnet)|einen\s+Fehler)",
        r"falsch|inkorrekt|Fehler|(?:(?:stimmt|kann)\s+)?(?:so\s+)?nicht\s+(?:richtig|korrekt|wahr|möglich|sein)"
        r"|stimmt\s+(?:so\s+)?nicht",
        "nicht|keine?|nie|weder|noch",
        "inkorrekt|vielleicht|eventuell|unsicher|außer|ausgeschlossen",
        "mehr|weniger|mindestens|höchstens|wenigstens",
        "Probe|Kontrolle", r"etwa|ungefähr|rund|circa|ca\.?|fast",
        r"alternativ|andernfalls|sonst|zweit\w+",
    ),
    Words(  # French
        r"(?:(?:la|le|ma)\s+)?(?:réponse|résultat|solution)(?:\s+(?:finale?|correcte?))?",
        "cela|ceci|ça|ce?", r"(?:n['’])?(?:est|était)", "dans|avec|entre",
        "attendez|attends|non|mais|correction",
        r"me\s+suis\s+trompée?|fait\s+une\s+erreur",
        r"faux|fausse|incorrecte?|erreur|pas\s+(?:juste|correcte?|vrai|possible)",
        "pas|ni|jamais", r"incorrecte?|peut-être|sauf|plutôt\s+que|exclue?",
        r"moins|(?:ou|au)\s+plus",
        r"vérif\w+", r"environ|presque|à\s+peu\s+près",
        r"sinon|autrement|deuxième|seconde?",
    ),
    Words(  # Spanish
        r"(?:(?:la|el|mi)\s+)?(?:respuesta|resultado|solución)(?:\s+(?:final|correcta?))?",
        "es[oae]|esto", "es|era", r"(?:en|dentro\s+de|con|entre)", "espera|no|pero|corrección",
        r"me\s+equivoqué|cometí\s+un\s+error",
        r"incorrect[oa]|fals[oa]|erróne[oa]|error|no\s+es\s+(?:correct[oa]|posible|ciert[oa])",
        r"no\s+(?:es|son|era)|nunca|tampoco", r"incorrect[oa]|quizás?|tal\s+vez|salvo|excepto",
        "más|menos",
        r"comproba\w+|verifica\w+", r"unos|unas|casi|aproximadamente|cerca\s+de",
        r"alternativamente|segund[oa]|si\s+no|de\s+lo\s+contrario",
    ),
    Words(  # Russian
        r"(?:итоговый\s+|правильный\s+)?(?:ответ|результат)", "это", "равен|равна", "в|внутри",
        "подождите|стоп|нет|но|исправление|поправка", r"я\s+(?:ошиб\w+|допустил\w?\s+ошибку)",
        r"неверно|неправильно|ошибка|не\s+(?:верно|так|правильно)", "не|нет|ни",
        "неверно|возможно|наверное|кроме|исключено", "больше|меньше|более|менее|минимум|максимум",
        r"провер\w+", r"около|примерно|почти|приблизительно",
        r"иначе|либо|альтернативно|втор\w+",
    ),
    Words(  # Arabic
        "(?:الجواب|الإجابة|النتيجة)", "هذا|هذه|ذلك", "هو|هي", "في|داخل", "انتظر|لا|لكن|تصحيح",
        "أخطأت",
        r"خطأ|خاطئة?|(?:غير|ليس)\s+صحيحا?", "ليس|ليست|لا", "خطأ|ربما|باستثناء|ما\\s+عدا",
        "أكثر|أقل",
        "تحقق|التحقق", "حوالي|تقريبا",
        "وإلا|بدلا|ثاني|الثاني",
    ),
)  # fmt: skip
UNSPACED = (
    Words(  # Chinese
        "(?:最终|正确)?(?:答案|结果)", "[这那它此]个?", "[是为]", "[在用]",
        "等等|等一下|不对|但是?|更正|纠正",
        "我?(?:算|弄|搞|看)错了?|我犯了", "错误?的?|不是?(?:对|正确)的?|有误",
        "不是|并非|不等于|而非", "也许|可能|除了|错误", "以上|以下|至少|至多|更多|更少|不到|超过",
        "检验|验证|检查", "大?约|近似|左右",
        "或者?|否则|另外|第二",
    ),
    Words(  # Japanese
        "(?:最終的な)?(?:答え|解答|回答)", "[こそ]れ", "は", "[「『]", "待って|いや|でも|訂正",
        "間違えました|計算ミス",
        "間違いです|誤りです|違います|正しくない|正しくありません|では(?:ない|ありません)",
        "ではなく", "かもしれ|たぶん|おそらく|間違い", "以上|以下|未満|少なくとも",
        "検算|確認", "約|およそ|ほぼ",
        "または|あるいは|そうでなければ|第二",
    ),
    Words(  # Korean
        "(?:최종\\s*)?(?:정답|답변?)[은이]?", "[이그]것|이건", "[은는]", "[‘“]",
        "잠깐|아니|하지만|정정", "실수했",
        "틀렸습니다|틀립니다|틀렸다|잘못|(?:[이가]\\s*)?아(?:닙니다|니다)|맞지\\s*않",
        "아니라", "아마|제외", "이상|이하|미만|최소|최대",
        "검산|확인", "약|대략|거의",
        r"또는|아니면|혹은|두\s*번째",
    ),
)  # fmt: skip


def any_of(*columns: str) -> str:
    """Returns a pattern of the words in some columns, in any of the languages."""
    whole, within = (
        "|".join(getattr(words, column) for words in table for column in columns)
        for table in (SPACED, UNSPACED)
    )
    return rf"(?:(?<![^\W\d_])(?<!\\)(?:{whole})(?![^\W\d_])|{within})"


def pattern(*columns: str) -> re.Pattern[str]:
    """Returns what finds any of the words in some columns, whatever their case."""
    return re.compile(any_of(*columns), re.IGNORECASE)
