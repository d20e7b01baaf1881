"""The verbs whose calls have faults in `test_boundary_faults.py`, and the others."""

from __future__ import annotations

SECRET = "sk-live-51Hq-canary"

VERBS = {
    "init": ("--store", "fresh/store.db", "init"),
    "add": ("add", "Draw a picture."),
    "modify": ("modify", "G0", "Call the shop."),
    "edit": ("edit",),
    "delete": ("delete", "G1"),
    "move": ("move", "G1", "--before", "G0", "--why", "shorter first"),
    "undo": ("undo",),
    "branch": ("branch", "third"),
    "tag": ("tag", "better"),
    "switch": ("switch", "other"),
    "reset": ("reset", "v1"),
    "merge": ("merge", "other"),
    "revert": ("revert", "v3"),
    "cherry-pick": ("cherry-pick", "v2"),
    "checkout": ("checkout", "v1"),
    "export": ("export", "--format", "md", "-o", "out.md"),
    "import": ("import", "new.md"),
    "bundle create": ("bundle", "create", "out.bundle"),
    "clone": ("clone", ".", "copy"),
    "clone of a bundle": ("clone", "all.bundle", "copy"),
    "fetch": ("fetch", "far"),
    "push": ("push", "far"),
    "pull": ("pull", "far"),
    "fsck --repair": ("fsck", "--repair"),
    "redact": ("redact", "--text", SECRET, "--reason", "leak", "--yes"),
    "keep": ("keep", "G0"),
    "redo": ("redo",),
    "remote add": ("remote", "add", "up", "far"),
    "remote remove": ("remote", "remove", "far"),
    "remote set-url": ("remote", "set-url", "far", "all.bundle"),
    "bisect start": ("bisect", "start", "HEAD", "v0"),
    "bisect bad": ("bisect", "bad"),
    "bisect good": ("bisect", "good"),
    "bisect skip": ("bisect", "skip"),
    "bisect run": ("bisect", "run", "true"),
    "bisect reset": ("bisect", "reset"),
    "feedback": ("feedback", "call-a", "--score", "false", "--correct", "40"),
    "feedback scale": ("feedback", "--scale", "stars=1..5"),
    "key new": ("key", "new", "trial", "--rate", "60"),
    "key change": ("key", "change", "shop", "--budget", "10/day"),
    "key revoke": ("key", "revoke", "shop"),
    "experiment start": ("experiment", "start", "x", "--control", "main", "--candidate", "other"),
    "experiment start of a proposal": (
        *("experiment", "start", "y", "--control", "prod"),
        *("--candidate", "p1"),
    ),
    "experiment share": ("experiment", "share", "x", "50%"),
    "experiment stop": ("experiment", "stop", "x"),
    "experiment promote": ("experiment", "promote", "x", "--force"),
    "experiment rollback": ("experiment", "rollback", "x"),
    "collect": ("collect", "--since", "2000-01-01", "-o", "more.jsonl"),
    "proposal accept": ("proposal", "accept", "p1", "--why", "right"),
    "proposal reject": ("proposal", "reject", "p1", "--why", "wrong"),
    "proposal reopen": ("proposal", "reopen", "p1", "--why", "too soon"),
    "watch": ("watch", "--export", "AGENTS.md", "--once"),
}
FIRST = {
    "redo": ("undo",),
    "experiment start of a proposal": ("branch", "-f", "prod", "other"),
    "proposal reopen": VERBS["proposal reject"],
    **dict.fromkeys(["key change", "key revoke"], ("key", "new", "shop")),
    **dict.fromkeys(
        [f"bisect {word}" for word in ("bad", "good", "skip", "run", "reset")],
        VERBS["bisect start"],
    ),
    **dict.fromkeys(
        [f"experiment {word}" for word in ("share", "stop", "promote", "rollback")],
        VERBS["experiment start"],
    ),
}
"""What is done before a verb, without a fault."""
LOOKS = {
    "remote": ("remote", "list", "--json"),
    "bisect": ("bisect", "log"),
    "feedback": ("traffic", "--json"),
    "key": ("key", "list", "--json"),
    "experiment": ("experiment", "list", "--json"),
    "proposal": ("proposal", "list", "--all", "--json"),
}
"""What shows that which a family of verbs writes, where the log does not."""

LOOKING = """log show diff blame credit status reflog cost power verify runs rollouts completion
help serve traffic bisect_log bisect_status bundle_list-heads bundle_verify remote_list key_list
experiment_list experiment_status proposal_list proposal_show model_list store_members workers_list
"""
LOOKING = {name.replace("_", " ") for name in LOOKING.split()}
"""The verbs that write nothing of their own."""
MODEL = "it calls models: `test_training_killed.py`, `test_improve_killed.py`"
SERVES = "it serves until it is ended, and has tests of its own"
ELSEWHERE = {
    **dict.fromkeys(["train", "eval", "compare", "prove", "improve", "regress"], MODEL),
    **dict.fromkeys(["proxy", "ui", "mcp", "rollout", "workers run", "workers start"], SERVES),
    **dict.fromkeys(["model check", "model serve"], SERVES),
    **dict.fromkeys(["model get", "model rm"], "weights in the cache: `test_local_fetch.py`"),
    **dict.fromkeys(["store grant", "store revoke"], "the database writes: PostgreSQL's"),
    "mirror git": "git writes the repository: `test_mirror.py`",
    "plot": "it needs a run; the page is written as `export -o` writes",
    "trust": "an entry in the user's own folder, which is asked for again",
}
"""The verbs that write and are not tried here, and why."""
