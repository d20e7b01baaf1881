"""All families by name."""

from __future__ import annotations

from benchmarks.families import labels, numbers_en_de, numbers_es_zh, records, texts
from benchmarks.families.family import Family

FAMILIES: dict[str, Family] = {
    family.name: family
    for module in (numbers_en_de, numbers_es_zh, labels, records, texts)
    for family in module.FAMILIES
}
