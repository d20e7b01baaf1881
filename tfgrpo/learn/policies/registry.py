"""Policies by name: ours, installed ones, and any `module:Class`.

Another package registers one as an entry point of the group `tfgrpo.policies`. It needs the methods
of `Policy` (`protocol.py`).
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points

from tfgrpo.learn.policies.protocol import Policy
from tfgrpo.settings import BASE_PROMPT, PAPER, PROBATION, TRIAL
from tfgrpo.store.errors import SettingsError

GROUP = "tfgrpo.policies"
BUILT_IN = {
    PROBATION: "tfgrpo.learn.policies.probation:Probation",
    BASE_PROMPT: "tfgrpo.learn.policies.base_prompt:BasePrompt",
    PAPER: "tfgrpo.learn.policies.paper:Published",
    TRIAL: "tfgrpo.learn.policies.trial:Trial",
}


def find_policy(name: str) -> type[Policy]:
    """Returns a policy by its name: ours, `module:Class`, or an installed one.

    Raises SettingsError for one that there is not, and for what is none.
    """
    there = {one.name: one.value for one in entry_points(group=GROUP)} | BUILT_IN
    if ":" not in name and name not in there:
        near = get_close_matches(name, there, n=1)
        raise SettingsError(
            f"there is no policy {name!r}" + (f"; did you mean {near[0]}?" if near else ""),
            hint=f"there is {', '.join(there)}, or write module:Class",
        )
    place = there.get(name, name)
    try:
        policy: object = EntryPoint(name, place, GROUP).load()
    except Exception as error:  # whatever a module of somebody else's does
        raise SettingsError(
            f"cannot load the policy {name}: {type(error).__name__}: {error}",
            hint="write module:Class, importable from the current folder",
        ) from None
    if not (isinstance(policy, type) and callable(getattr(policy, "learn", None))):
        raise SettingsError(f"{name} is no policy", hint="docs/extending.md says what one has")
    return policy
