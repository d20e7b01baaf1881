"""Numbers with counters, units and scales in Chinese, Japanese and Korean characters.

They stand behind a number without a blank, so that nothing but a list tells a counter from a word
that makes another number of it: `5个` is 5, `5万` is 50,000, `5个半` and `5以上` are no 5.
"""

from __future__ import annotations

import re

UNITS = {
    "毫米": "mm", "厘米": "cm", "公分": "cm", "千米": "km", "公里": "km", "米": "m",
    "毫克": "mg", "千克": "kg", "公斤": "kg", "克": "g", "吨": "tonne",
    "毫升": "mL", "升": "L", "秒": "s", "分钟": "minutes", "小时": "hours", "天": "days",
    "元": "yuan", "圆": "yuan", "円": "yen", "원": "won", "美元": "dollars", "欧元": "euros",
    "牛顿": "newton", "焦耳": "joule", "瓦": "watt", "度": "degrees",
}  # fmt: skip
POWERS = {"平方": 2, "立方": 3, "": 1}
SCALES = {"百": 2, "千": 3, "万": 4, "萬": 4, "亿": 8, "億": 8}
COUNTERS = "个個人名只张張条條件次种種支本位棵朵辆輛台把匹枚倍岁歳つ개명권"
OTHER = "以上下多余約约不或和左右内外半倍百千万亿分之前后至第方成折"
"""Characters of words that make another number of the one before them."""
NUMBER = r"(?P<number>[-+]?(?:\d+(?:[.,]\d+)*|\\[dt]?frac\{\d+\}\{\d+\}))"
HAN = "\u4e00-\u9fff"
COUNTED = re.compile(
    rf"\A\s*{NUMBER}\s*(?P<scale>[{''.join(SCALES)}])?\s*"
    rf"(?:(?P<power>平方|立方)?(?P<unit>{'|'.join(sorted(UNITS, key=len, reverse=True))})"
    rf"|[{COUNTERS}](?:(?![{OTHER}])[{HAN}]){{0,6}})?\s*\Z"
)
PERCENT = re.compile(rf"\A\s*百分之\s*{NUMBER}\s*\Z")
TEXT = re.compile(
    rf"\\(?:text|mathrm|mbox|textrm)\s*\{{\s*([{HAN}\u3040-\u30ff\uac00-\ud7af]+)\s*\}}"
)


def in_latin(text: str) -> str:
    """Returns a number with its unit in Latin letters, its scale as a power of ten, and without
    its counter; any other text as it is."""
    bare = TEXT.sub(r"\1", text)
    percent = PERCENT.match(bare)
    if percent is not None:
        return f"{percent['number']}\\%"
    match = COUNTED.match(bare)
    if match is None:
        return text
    number = match["number"]
    if match["scale"]:
        number = f"{number} \\times 10^{{{SCALES[match['scale']]}}}"
    if not match["unit"]:
        return number
    power = POWERS[match["power"] or ""]
    return f"{number} \\text{{ {UNITS[match['unit']]}}}" + (f"^{power}" if power > 1 else "")
