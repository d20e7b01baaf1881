"""The domains and judges that come with tfgrpo, by name. A new one gets a line here."""

from __future__ import annotations

BUILT_IN = {
    "choice": "tfgrpo.domains.choice:DOMAIN",
    "exact": "tfgrpo.domains.exact:DOMAIN",
    "json": "tfgrpo.domains.json_fields:DOMAIN",
    "judge": "tfgrpo.domains.judge:make_domain",
    "math": "tfgrpo.domains.math:DOMAIN",
    "rubric": "tfgrpo.domains.rubric:make_domain",
    "web": "tfgrpo.domains.web:DOMAIN",
}
