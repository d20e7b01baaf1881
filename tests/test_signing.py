"""Versions and tags are signed with SSH keys, and whatever was changed is refused."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import Cli, one_line_error
from format_reader import Reader
from store_helpers import add, clock
from sync_helpers import far_ssh, sound

from tfgrpo.mirror import bring_back, mirror
from tfgrpo.store import Operation, PushRefused, Store, UnknownRevision
from tfgrpo.store import signing as signatures
from tfgrpo.store.canonical import canonical, seal, signed_payload
from tfgrpo.store.history.name_moves import protect
from tfgrpo.store.transfer import locations, sync
from tfgrpo.store.transfer.bundle import create
from tfgrpo.store.transfer.other_store import NameMove, StorePeer
from tfgrpo.store.transfer.pack import PackedEvent, PackedVersion, exported
from tfgrpo.store.transfer.receive import digest_of

pytestmark = pytest.mark.skipif(
    shutil.which("ssh-keygen") is None, reason="there is no ssh-keygen here"
)
ANN, EVE = "ann@example.org", "eve@example.org"


class Keys(NamedTuple):
    """Two people's private keys, and the line of allowed signers for the first."""

    ann: str
    eve: str
    allowed: str


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("ann", "eve"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(command, check=True)
    public = (folder / "ann.pub").read_text()
    return Keys(str(folder / "ann"), str(folder / "eve"), f"{ANN} {public}")


def allow(store: Store, lines: str) -> None:
    Path(signatures.allowed_signers(store)).write_text(lines)


@pytest.fixture
def store(tmp_path: Path, keys: Keys) -> Iterator[Store]:
    """main at v1, signed by Ann, who alone is allowed."""
    with Store.init(tmp_path / "ann/.tfgrpo/store.db", author="ann", now=clock()) as made:
        made.signer = signatures.signer(keys.ann)
        evidence = {"run": "r", "rewards": [[0, 1.0], [1, 0.5]]}
        rules = [
            Operation("ADD", None, "Count both days.", "asked", evidence),
            Operation("ADD", None, "Round up."),
        ]
        made.commit("main", rules, message="two rules", meta={"step": 3, "x": [0.25, None]})
        allow(made, keys.allowed)
        yield made


def test_what_is_signed_is_checked_by_ssh_keygen_alone(store: Store, tmp_path: Path) -> None:
    reader = Reader(Path(store.file))
    message, signature = reader.signed(1)
    reader.close()
    (tmp_path / "signature").write_text(signature)
    command = ["ssh-keygen", "-Y", "verify", "-n", "tfgrpo", "-I", ANN]
    command += ["-f", signatures.allowed_signers(store), "-s", str(tmp_path / "signature")]
    assert subprocess.run(command, input=message, capture_output=True).returncode == 0
    assert subprocess.run(command, input=message + b" ", capture_output=True).returncode != 0


def test_versions_and_tags_are_signed_and_say_whose_they_are(store: Store, keys: Keys) -> None:
    main = store.tip("main")
    assert signatures.check(store, main).by is not None
    assert str(signatures.check(store, main)).startswith(f"signed by {ANN} (ED25519 key SHA256:")
    assert signatures.check(store, store.version(0)).state == "none"
    sign = signatures.signer(keys.ann)
    assert signatures.sign_tag(store, "released", "main", sign, "first", force=False) == main
    assert store.resolve("released") == store.resolve("released@{0}") == main
    assert signatures.check_tag(store, "released").state == "good"
    store.create_tag("plain", "main")
    assert signatures.check_tag(store, "plain").state == "none"
    with pytest.raises(UnknownRevision):
        signatures.check_tag(store, "nobody")
    sound(store)
    store.signer = None
    unsigned = store.commit("main", [add("x")], message="m")
    assert signatures.check(store, unsigned).state == "none"


def test_who_is_allowed_is_what_counts(store: Store, keys: Keys) -> None:
    main = store.tip("main")
    public = keys.allowed.partition(" ")[2]
    for lines in (
        "",
        f"{EVE} {Path(keys.eve + '.pub').read_text()}",
        f'{ANN} namespaces="git" {public}',
        f'{ANN} valid-before="19691231" {public}',
        f'{ANN} valid-after="20000101" {public}',
        "no line of such a file\n",
    ):
        allow(store, lines)
        assert signatures.check(store, main).state == "bad", lines
    allow(store, f'{ANN} namespaces="tfgrpo",valid-before="20000101" {public}')
    assert signatures.check(store, main).state == "good"
    Path(signatures.allowed_signers(store)).unlink()
    assert "nobody is allowed" in signatures.check(store, main).why


def test_a_key_that_is_not_there_commits_nothing(store: Store, tmp_path: Path) -> None:
    store.signer = signatures.signer(str(tmp_path / "none"))
    with pytest.raises(Exception, match="cannot sign with") as refused:
        store.commit("main", [add("x")], message="m")
    assert "ssh-add" in str(refused.value.hint)  # type: ignore[attr-defined]
    assert store.tip("main").number == 1
    store.signer = None
    assert store.commit("main", [add("x")], message="m").number == 2


# tampering:


def altered(packed: PackedVersion, **changes: object) -> PackedVersion:
    """A version with other content, and the digest of that."""
    changed = packed._replace(**changes)
    return changed._replace(digest=digest_of(changed))


def with_meta(
    packed: PackedVersion, change: Callable[[dict[str, object]], object]
) -> PackedVersion:
    meta = json.loads(packed.meta or "{}")
    change(meta)
    return altered(packed, meta=canonical(meta).decode() if meta else None)


def said(event: PackedEvent, text: str | None, reason: str | None = None) -> PackedEvent:
    """An event that says something else, sealed as it should be."""
    salt = b"s" * 16
    return event._replace(text=text, reason=reason, salt=salt, seal=seal(salt, text, reason))


def with_event(packed: PackedVersion, event: PackedEvent) -> PackedVersion:
    return altered(packed, events=(event, *packed.events[1:]))


def flipped(signature: str, at: int) -> str:
    """A signature with one bit of its content changed."""
    lines = signature.strip().splitlines()
    blob = bytearray(base64.b64decode("".join(lines[1:-1])))
    blob[at % len(blob)] ^= 1 << at % 8
    return "\n".join([lines[0], base64.b64encode(bytes(blob)).decode(), lines[-1], ""])


def tamperings(packed: PackedVersion, keys: Keys) -> dict[str, PackedVersion]:
    """Every way in which we thought of changing a signed version, each with its right digest."""
    signature = json.loads(packed.meta or "{}")["signature"]
    first, second = packed.events
    unsigned = with_meta(packed, lambda meta: meta.pop("signature"))

    def by(key: str, namespace: str, message: bytes) -> str:
        command = ["ssh-keygen", "-Y", "sign", "-n", namespace, "-f", key]
        return subprocess.run(
            command, input=message, capture_output=True, check=True
        ).stdout.decode()

    signed = signed_payload(unsigned.digest)
    signatures = {
        "none": None,
        "empty": "",
        "a number": 7,
        "a list": [signature],
        "no armour": "".join(signature.splitlines()[1:-1]),
        "half": signature[: len(signature) // 2],
        "without its end": signature.replace("-----END SSH SIGNATURE-----", ""),
        "long": signature + "x" * 100_000,
        "of another key": by(keys.eve, "tfgrpo", signed),
        "for git": by(keys.ann, "git", signed),
        "for files": by(keys.ann, "file", signed),
        "of the digest alone": by(keys.ann, "tfgrpo", unsigned.digest),
        "of the digest in words": by(keys.ann, "tfgrpo", unsigned.digest.hex().encode()),
        "of the signed digest": by(keys.ann, "tfgrpo", signed_payload(packed.digest)),
        "of nothing": by(keys.ann, "tfgrpo", b""),
        **{f"bit {at}": flipped(signature, at) for at in range(0, 180, 9)},
    }
    cases = {
        f"signature: {name}": with_meta(packed, lambda meta, s=value: meta.update(signature=s))  # type: ignore[misc]
        for name, value in signatures.items()
    }
    cases |= {
        "unsigned": unsigned,
        "author": altered(packed, author="eve"),
        "author's case": altered(packed, author="Ann"),
        "author with a blank": altered(packed, author="ann "),
        "author that looks alike": altered(packed, author="\u0430nn"),
        "a microsecond later": altered(packed, time=packed.time + 1),
        "at the beginning": altered(packed, time=0),
        "message": altered(packed, message="two rule"),
        "message with a line": altered(packed, message="two rules\n"),
        "no message": altered(packed, message=""),
        "meta more": with_meta(packed, lambda meta: meta.update(run="other")),
        "meta less": with_meta(packed, lambda meta: meta.pop("step")),
        "meta another": with_meta(packed, lambda meta: meta.update(step=4)),
        "meta's kind": with_meta(packed, lambda meta: meta.update(step="3")),
        "called a tag": with_meta(packed, lambda meta: meta.update(tag="main")),
        "text": with_event(packed, said(first, "Count no day.", "asked")),
        "text's case": with_event(packed, said(first, "count both days.", "asked")),
        "text sealed anew": with_event(packed, said(first, first.text, first.reason)),
        "reason": with_event(packed, said(first, first.text, "told")),
        "no reason": with_event(packed, said(first, first.text)),
        "evidence": with_event(packed, first._replace(evidence='{"run":"s"}')),
        "no evidence": with_event(packed, first._replace(evidence=None)),
        "another's evidence": altered(
            packed, events=(first, second._replace(evidence=first.evidence))
        ),
        "another id": with_event(packed, first._replace(experience="0" * 12)),
        "ids exchanged": altered(
            packed,
            events=(
                first._replace(experience=second.experience),
                second._replace(experience=first.experience),
            ),
        ),
        "texts exchanged": altered(
            packed,
            events=(
                first._replace(text=second.text, reason=None, seal=second.seal, salt=second.salt),
                second._replace(
                    text=first.text, reason=first.reason, seal=first.seal, salt=first.salt
                ),
            ),
        ),
        "order": altered(packed, events=(second, first)),
        "one less": altered(packed, events=(first,)),
        "the other less": altered(packed, events=(second,)),
        "none": altered(packed, events=()),
        "one more": altered(
            packed, events=(*packed.events, said(second._replace(experience="1" * 12), "More."))
        ),
        "an operation": altered(
            packed,
            events=(
                *packed.events,
                first._replace(
                    op="DELETE", text=None, reason=None, evidence=None, seal=None, salt=None
                ),
            ),
        ),
    }
    return cases


def test_whatever_is_changed_is_refused(store: Store, keys: Keys, tmp_path: Path) -> None:
    base = store.tip("main")
    (packed,) = exported(store.port, [base.number])
    cases = tamperings(packed, keys)
    assert len(cases) >= 50
    assert len({case.digest for case in cases.values()}) == len(cases)
    with Store.init(tmp_path / "team/.tfgrpo/store.db", author="bob", now=clock()) as team:
        allow(team, keys.allowed)
        protect(team, "branch", "main")
        root, peer = team.version(0).digest, StorePeer(team)
        for name, case in cases.items():
            for force in (False, True):
                with pytest.raises(PushRefused, match="takes only signed versions"):
                    peer.push([NameMove("heads/main", root, case.digest)], [case], force=force)
                assert team.tip("main").number == 0, name
        honest = [NameMove("heads/main", root, packed.digest)]
        peer.push(honest, [packed], force=False)
        assert team.tip("main").digest == base.digest
        assert signatures.check(team, team.tip("main")).by is not None


@pytest.mark.parametrize("way", ["path", "ssh"])
def test_one_unsigned_version_among_signed_ones_is_refused(
    store: Store, keys: Keys, tmp_path: Path, way: str
) -> None:
    team_path, source = tmp_path / "team", locations.parse(str(tmp_path / "ann"))
    locations.clone(source, team_path / ".tfgrpo/store.db", author="b")
    where = locations.parse("far:team" if way == "ssh" else str(team_path))
    with Store.open(team_path, author="b", now=clock()) as team:
        allow(team, keys.allowed)
        protect(team, "branch", "main")

    def push(name: str, **flags: bool) -> None:
        with locations.peer(where, author="ann", ssh=far_ssh(tmp_path)) as peer:
            sync.push(store, peer, [name], remote=None, **flags)

    signer, store.signer = store.signer, None
    store.commit("main", [add("unsigned")], message="m")
    store.signer = signer
    store.commit("main", [add("signed")], message="m")
    for force in (False, True):
        with pytest.raises(PushRefused, match="no signature"):
            push("main", force=force)
    store.move_branch("main", "v1")
    store.commit("main", [add("signed")], message="m")
    push("main")
    with Store.open(team_path) as team:
        assert team.tip("main").digest == store.tip("main").digest
    store.move_branch("main", "v1")
    with pytest.raises(PushRefused, match="would not move forward"):
        push("main")
    push("main", force=True)  # all that is left there is signed
    with pytest.raises(PushRefused, match="protected"):
        push("main", delete=True)


def test_signatures_go_through_git_and_back(store: Store, keys: Keys, tmp_path: Path) -> None:
    signatures.sign_tag(store, "released", "main", signatures.signer(keys.ann), "", force=False)
    mirror(store, tmp_path / "mirror")
    with Store.init(tmp_path / "back/.tfgrpo/store.db", author="b") as back:
        bring_back(back, tmp_path / "mirror")
        allow(back, keys.allowed)
        assert signatures.check_tag(back, "released").state == "good"
        assert back.resolve("released").digest == store.tip("main").digest
        assert signatures.check(back, back.resolve("released")).state == "good"


def test_a_tag_is_good_under_its_own_name_and_place_alone(store: Store, keys: Keys) -> None:
    sign = signatures.signer(keys.ann)
    signatures.sign_tag(store, "released", "main", sign, "", force=False)
    own = signatures.standing_tag(store, "released")
    store.create_tag("prod", own)
    assert "another tag" in signatures.check_tag(store, "prod").why
    (packed,) = exported(store.port, [own.number])
    (event, _) = next(iter(exported(store.port, [1]))).events
    for wrong in (
        altered(packed, parents=(store.version(0).digest,)),
        altered(packed, parents=(*packed.parents, store.version(0).digest)),
        altered(packed, events=(said(event._replace(experience="2" * 12), "More."),)),
        with_meta(packed, lambda meta: meta.update(tag="prod")),
    ):
        peer = StorePeer(store)
        name = json.loads(wrong.meta or "")["tag"]
        at = store.port.names.standing(f"tags/{name}")
        moves = [NameMove(f"tags/{name}", at.digest if at else None, wrong.digest)]
        peer.push(moves, [wrong], force=True)
        assert signatures.check_tag(store, name).state == "bad", wrong
        protect(store, "tag", name)
        again = altered(wrong, time=wrong.time + 1)
        with pytest.raises(PushRefused, match="only signed versions"):
            peer.push([NameMove(f"tags/{name}", wrong.digest, again.digest)], [again], force=True)
        store.move_names([(f"protected/tags/{name}", None, None)], "unprotect")


@pytest.mark.parametrize("way", ["clone", "bundle", "ssh", "push"])
def test_signatures_travel(store: Store, keys: Keys, tmp_path: Path, way: str) -> None:
    signatures.sign_tag(store, "released", "main", signatures.signer(keys.ann), "", force=False)
    source, there = locations.parse(str(tmp_path / "ann")), tmp_path / "there/.tfgrpo/store.db"
    if way == "bundle":
        create(store, tmp_path / "all.bundle")
        locations.clone(locations.parse(str(tmp_path / "all.bundle")), there, author="b")
    elif way == "push":
        with Store.init(there, author="b") as other:
            sync.push(store, StorePeer(other), ["main"], remote=None)
    else:
        where = locations.parse("far:ann") if way == "ssh" else source
        locations.clone(where, there, author="b", ssh=far_ssh(tmp_path))
    with Store.open(there, author="b") as other:
        allow(other, keys.allowed)
        assert signatures.check_tag(other, "released").state == "good"
        assert signatures.check(other, other.resolve("released")).state == "good"
        assert other.resolve("released").digest == store.tip("main").digest
        sound(other)


@pytest.mark.postgres
def test_a_shared_database_keeps_signatures(
    store: Store, keys: Keys, shared: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here/.tfgrpo").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    signatures.sign_tag(store, "released", "main", signatures.signer(keys.ann), "", force=False)
    with Store.init(shared, author="ann") as team:
        sync.push(store, StorePeer(team), ["main"], remote=None)
        allow(team, keys.allowed)
        protect(team, "branch", "main")
        assert signatures.check_tag(team, "released").state == "good"
        with team.forced():
            team.signer = signatures.signer(keys.ann)
            signed = team.commit("main", [add("by a member")], message="m")
        assert signatures.check(team, signed).state == "good"
        signatures.sign_tag(team, "second", "main", team.signer, "", force=False)
        assert signatures.check_tag(team, "second").state == "good"
        sync.fetch(store, StorePeer(team), "origin")
        store.move_branch("main", "origin/main")
        store.signer = None
        store.commit("main", [add("unsigned")], message="m")
        with pytest.raises(PushRefused, match="no signature"):
            sync.push(store, StorePeer(team), ["main"], remote=None)
        assert team.tip("main") == signed


def test_the_commands_show_a_tags_signature_at_the_version_that_it_means(
    cli: Cli, keys: Keys, tmp_path: Path
) -> None:
    cli("init")
    (tmp_path / "tfgrpo.toml").write_text(f'[commit]\nkey = "{keys.ann}"\n')
    (tmp_path / ".tfgrpo/allowed_signers").write_text(keys.allowed)
    cli("add", "Count both days.")
    cli("tag", "-s", "released")
    cli("tag", "plain", "released")
    by = f"tag released: signed by {ANN}"
    for command in (
        ["log", "--show-signature"],
        ["log", "-1", "--oneline", "--show-signature"],
        ["log", "--graph", "--show-signature"],
        ["log", "--all", "--show-signature"],
        ["show", "released"],
        ["show", "v1"],
    ):
        shown = cli(*command).stdout
        assert "released" in shown.partition("\n")[0], command
        assert shown.count(by) == 1, command
    assert "v2" not in cli("log", "--all").stdout, "the tag's own version is no version of work"
    (first, _) = json.loads(cli("log", "--show-signature", "--json").stdout)
    assert first["names"] == ["HEAD -> main", "plain", "released"]
    assert (first["signature"]["state"], list(first["signed_tags"])) == ("none", ["released"])
    fields = json.loads(cli("show", "HEAD", "--json").stdout)
    assert fields["signed_tags"] == first["signed_tags"]
    cli("tag", "other", "v2")
    assert "(signed)" not in cli("tag", "-l", "other").stdout, "it is another tag's"
    assert "a signature for another tag" in cli("show", "v1").stdout
    assert "was v1" in cli("tag", "-d", "other").stdout
    cli("ui", "--export", "site")
    assert any(by in page.read_text() for page in (tmp_path / "site").glob("version-v1*.html"))
    (tmp_path / ".tfgrpo/allowed_signers").unlink()
    assert "tag released: a signature that nobody is allowed to make" in cli("show").stdout
    (tmp_path / ".tfgrpo/allowed_signers").write_text(keys.allowed)
    missing = cli("show", env={"PATH": str(tmp_path)}).stdout
    assert "a signature that cannot be checked here: cannot run ssh-keygen" in missing


def test_the_commands_sign_and_verify(cli: Cli, keys: Keys, tmp_path: Path) -> None:
    cli("init")
    (tmp_path / "tfgrpo.toml").write_text(f'[commit]\nsign = true\nkey = "{keys.ann}"\n')
    (tmp_path / ".tfgrpo/allowed_signers").write_text(keys.allowed)
    cli("add", "Count both days.")
    assert f"signed by {ANN}" in cli("log", "-1", "--show-signature").stdout
    assert "signed" in cli("tag", "-s", "released", "-m", "first").stdout
    assert ANN in cli("tag", "--verify", "released").stdout
    assert "(signed) first" in cli("tag").stdout
    assert json.loads(cli("tag", "--json").stdout)["signed"] == ["released"]
    found = json.loads(cli("tag", "--verify", "released", "--json").stdout)
    assert (found["state"], found["version"]) == ("good", "v1")
    assert "v1 " in cli("log", "released", "--oneline").stdout
    cli("tag", "plain")
    assert "no signature" in cli("tag", "--verify", "plain", ok=False).stdout
    (tmp_path / "tfgrpo.toml").write_text("[commit]\nsign = 1\n")
    one_line_error(cli("add", "More.", ok=False), "true or false", code=2)
    (tmp_path / "tfgrpo.toml").write_text("[commit]\nsign = true\n")
    config = {"GIT_CONFIG_GLOBAL": str(tmp_path / "gitconfig")}
    one_line_error(cli("add", "More.", ok=False, env=config), "no key to sign with", code=2)
    (tmp_path / "gitconfig").write_text(f"[user]\n\tsigningkey = {keys.ann}.pub\n")
    cli("add", "More.", env=config)
    assert f"signed by {ANN}" in cli("log", "-1", "--show-signature").stdout


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ("[commit\nsign = true\n", "must be TOML"),
        ("[commit]\nsing = true\n", "[commit] takes only sign and key"),
        ("commit = true\n", "[commit] takes only sign and key"),
        ("author = 1\n", "author is a name"),
    ],
)
def test_settings_that_cannot_be_read_turn_no_signature_off(
    cli: Cli, tmp_path: Path, settings: str, why: str
) -> None:
    cli("init")
    (tmp_path / "tfgrpo.toml").write_text(settings)
    nobody = {"TFGRPO_AUTHOR": ""}
    one_line_error(cli("add", "Count both days.", ok=False, env=nobody), why, code=2)
    if "commit" in settings:
        one_line_error(cli("add", "Count both days.", ok=False), why, code=2)
    assert "v1" not in cli("log", env=nobody).stdout, "to look records nothing"
