"""Notices by mail: a real SMTP server on loopback, in the clear, with STARTTLS, and with TLS."""

from __future__ import annotations

import asyncio
import email
import email.policy
import logging
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from test_ui_review import add_proposals_to
from ui_rig import store_at

from tfgrpo.production.by_day import Bounds, bounds, set_bounds
from tfgrpo.production.experiment import ExperimentPlan, experiment, start
from tfgrpo.production.mail import PASSWORD, mail_server
from tfgrpo.store import Store
from tfgrpo.store.activity.traffic import CallRecord, Feedback, traffic_path
from tfgrpo.store.errors import SettingsError
from tfgrpo.store.opening import open_traffic
from tfgrpo.ui.notifications import Notifier, teller
from tfgrpo.ui.store_per_thread import Stores
from tfgrpo.ui.ui_settings import UiSettings

smtp = pytest.importorskip("aiosmtpd.smtp", reason="aiosmtpd is not installed")
controllers = pytest.importorskip("aiosmtpd.controller")
SECRET = "hunter2-and-more"


class Post:
    """Keeps what is handed in, and lets one person in."""

    def __init__(self, refuse: bool = False) -> None:
        self.mails: list[tuple[list[str], Any]] = []
        self.refuse = refuse

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        if self.refuse:
            return "451 later"
        message = email.message_from_bytes(envelope.content, policy=email.policy.default)
        self.mails.append((envelope.rcpt_tos, message))
        return "250 taken"

    def authenticate(self, server: Any, session: Any, envelope: Any, kind: str, data: Any) -> Any:
        right = (data.login, data.password) == (b"ana", SECRET.encode())
        return smtp.AuthResult(success=right, handled=False)


@contextmanager
def post_office(post: Post, **options: Any) -> Iterator[int]:
    """Runs a mail server; gives its port."""

    class Office(controllers.Controller):  # type: ignore[misc]
        def _trigger_server(self) -> None:
            self.port = self.server.sockets[0].getsockname()[1]
            super()._trigger_server()

    controller = Office(
        post, hostname="127.0.0.1", port=0, authenticator=post.authenticate, **options
    )
    controller.start()
    try:
        yield controller.port
    finally:
        controller.stop()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, Path]:
    """A context with a certificate for 127.0.0.1, and the file by which it is trusted."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "post")])
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    file = tmp_path_factory.mktemp("tls") / "post.pem"
    plain = serialization.NoEncryption()
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    file.write_bytes(signed.public_bytes(pem) + private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context, file


def looks(store: Path, urls: tuple[str, ...], *acts: Any) -> tuple[list[int], Notifier]:
    """Looks once, and again after each act; returns how many were delivered each time."""

    async def look() -> list[int]:
        counts = [await notifier.look()]
        for act in acts:
            with Store.open(store, author="ana") as opened:
                act(opened)
            counts.append(await notifier.look())
        return counts

    stores = Stores(store)
    try:
        notifier = Notifier(stores, UiSettings(store, {}, notify=urls, public="http://pages"))
        return asyncio.run(look()), notifier
    finally:
        stores.close()


def fails(opened: Store) -> None:
    run = opened.runs.create("r", "6" * 32, "main", 1, {"models": {"model": "m"}}, "ana")
    opened.runs.note(run, "started")
    opened.runs.note(run, "failed", "Bcc: eve@example.com\r\nthe endpoint said 503 ü")


def harms(opened: Store) -> None:
    """Starts an experiment whose candidate is always wrong where the control is right."""
    opened.create_branch("worse", "v0")
    start(opened, "worse", ("worse", "main"), 0.5, ExperimentPlan(unit="call"), why="to see")
    running, begin = experiment(opened, "worse"), time.time_ns() // 1000 + 1_000_000
    blank = CallRecord(*[None] * len(CallRecord._fields))._replace(
        worker="w",
        route="/v1/messages",
        streamed=1,
        stale=0,
        status=200,
        library="default",
        added=9,
    )
    traffic = open_traffic(traffic_path(opened.path), create=True)
    try:
        for n in range(400):
            arm = running.control if n % 2 else running.candidate
            call = blank._replace(
                id=f"call-{n:08x}",
                time=begin + n,
                version=arm.revision,
                digest=arm.digest[:16],
                arm=f"worse/{'control' if n % 2 else 'candidate'}",
                subject=f"s{n}",
                latency=1000,
            )
            traffic.add([call], [])
            traffic.add_feedback(Feedback(call.id, begin + n, "till", float(n % 2)))
    finally:
        traffic.close()


def spends(dollars: int) -> Any:
    """Sets a budget of $100 for a month, unless one is set, and makes a call that costs so much."""

    def act(opened: Store) -> None:
        from test_ui_production import PRICES, add_call

        Path(opened.path).parents[1].joinpath("tfgrpo.toml").write_text(PRICES)
        add_call(Path(opened.path), f"for-{dollars}", dollars)
        if bounds(opened)[0].month is None:
            set_bounds(opened, Bounds(month=100), seen=0)

    return act


def test_what_waits_fails_or_harms_is_told_by_mail(tmp_path: Path) -> None:
    store, post = store_at(tmp_path, "Count both days."), Post()
    with post_office(post) as port:
        url = f"smtp://127.0.0.1:{port}?from=tfgrpo@example.com&to=ana@example.com&to=ben@x.org"
        acts = (add_proposals_to, fails, harms, lambda _: None, spends(81), spends(8), spends(12))
        counts, _ = looks(store, (url,), *acts)
    assert counts == [0, 1, 1, 1, 0, 1, 0, 1]
    assert {tuple(to) for to, _ in post.mails} == {("ana@example.com", "ben@x.org")}
    subjects = [" ".join(mail["Subject"].split()) for _, mail in post.mails]
    assert subjects[0].startswith("Proposal p1 waits: ")
    assert subjects[1] == "Run r failed: Bcc: eve@example.com the endpoint said 503 ü"
    assert "Experiment" in subjects[2]
    assert subjects[3].endswith("$81.00, more than 80% of the budget of $100.00")
    assert subjects[4].endswith("$101.00, more than the budget of $100.00")
    texts = [mail.get_content() for _, mail in post.mails]
    assert "http://pages/review?id=p1" in texts[0]
    assert "http://pages/run/r" in texts[1]
    assert "http://pages/production" in texts[2]
    assert all(
        mail["Bcc"] is None and mail["Date"] and mail["Message-ID"] for _, mail in post.mails
    )


@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
def test_a_login_goes_over_tls_alone(
    scheme: str,
    tmp_path: Path,
    certificate: tuple[ssl.SSLContext, Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, post = store_at(tmp_path, "Count both days."), Post()
    context, file = certificate
    options: dict[str, Any] = {"tls_context": context, "require_starttls": True}
    if scheme == "smtps":
        options = {"ssl_context": context, "auth_require_tls": False}
    with post_office(post, auth_required=True, **options) as port:
        url = f"{scheme}://ana@127.0.0.1:{port}?to=ana@example.com"
        monkeypatch.setenv(PASSWORD, SECRET)
        caplog.set_level(logging.DEBUG)
        assert looks(store, (url,), fails)[0] == [0, 0]
        assert "CERTIFICATE_VERIFY_FAILED" in caplog.text
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        monkeypatch.setenv(PASSWORD, "wrong-" + SECRET)
        assert looks(store, (url,), add_proposals_to)[0] == [0, 0]
        assert "refused the user or the password" in caplog.text
        monkeypatch.setenv(PASSWORD, SECRET)
        assert looks(store, (url,), harms)[0] == [0, 1]
    (mail,) = (mail for _, mail in post.mails)
    assert mail["From"] == "ana@127.0.0.1"
    assert SECRET not in caplog.text


def test_an_address_that_the_server_refuses_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Picky(Post):
        async def handle_RCPT(self, _: Any, __: Any, envelope: Any, to: str, ___: Any) -> str:
            if to.startswith("ben"):
                return "550 nobody of that name, says SECRET"
            envelope.rcpt_tos.append(to)
            return "250 OK"

    store, post = store_at(tmp_path, "Count both days."), Picky()
    with post_office(post) as port:
        url = f"smtp://127.0.0.1:{port}?from=t@example.com&to=ana@example.com&to=ben@example.com"
        assert looks(store, (url,), fails)[0] == [0, 1]
    assert [to for to, _ in post.mails] == [["ana@example.com"]]
    assert "no mail for ben@example.com: status 550" in caplog.text
    assert "SECRET" not in caplog.text


def test_prices_that_cannot_be_read_hide_no_harm_and_are_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def breaks(opened: Store) -> None:
        (tmp_path / "tfgrpo.toml").write_text('[prices]\n"m" = "cheap"\n')

    store, post = store_at(tmp_path, "Count both days."), Post()
    with post_office(post) as port:
        url = f"smtp://127.0.0.1:{port}?from=t@example.com&to=ana@example.com"
        counts, _ = looks(store, (url,), spends(8), breaks, harms, lambda _: None)
    assert counts == [0, 0, 1, 1, 0]
    trouble, harm = [" ".join(mail["Subject"].split()) for _, mail in post.mails]
    assert trouble.startswith("Production could not be looked at: ")
    assert harm.startswith("Experiment worse: ")
    assert caplog.text.count("Production could not be looked at") == 1


def test_a_bound_of_a_day_or_a_month_is_told_of_once(tmp_path: Path) -> None:
    """Also where it was not crossed, or could not be known, between; another bound is another."""

    def calls(name: str, *statuses: int) -> Any:
        from test_ui_production import add_call

        def act(opened: Store) -> None:
            for n, status in enumerate(statuses):
                add_call(Path(opened.path), f"{name}-{n}", 0, status=status)

        return act

    def bounds_at(**values: float) -> Any:
        def act(opened: Store) -> None:
            now, seen = bounds(opened)
            set_bounds(opened, now._replace(**values), seen=seen)

        return act

    def prices(content: str) -> Any:
        return lambda _: (tmp_path / "tfgrpo.toml").write_text(content)

    from test_ui_production import PRICES

    store, post = store_at(tmp_path, "Count both days."), Post()
    acts = {
        "a budget": (spends(81), 1),
        "an error": (bounds_at(errors=0.4), 0),
        "half of the calls fail": (calls("a", 500), 1),
        "a third fails": (calls("b", 200), 0),
        "half of them again": (calls("c", 500), 0),
        "prices nobody can read": (prices('[prices]\n"m" = "cheap"\n'), 1),
        "prices again": (prices(PRICES), 0),
        "another bound": (bounds_at(errors=0.45), 1),
        "another budget": (bounds_at(month=101), 1),
    }
    with post_office(post) as port:
        url = f"smtp://127.0.0.1:{port}?from=t@example.com&to=ana@example.com"
        counts, _ = looks(store, (url,), *(act for act, _ in acts.values()))
    assert dict(zip(acts, counts[1:], strict=True)) == {name: n for name, (_, n) in acts.items()}


def test_one_address_that_is_away_holds_up_no_other(tmp_path: Path) -> None:
    store, away, there = store_at(tmp_path, "Count both days."), Post(refuse=True), Post()
    with post_office(away) as first, post_office(there) as second:
        urls = tuple(f"smtp://127.0.0.1:{port}?to=a@b.c" for port in (first, second))

        def comes_back(_: Store) -> None:
            away.refuse = False

        assert looks(store, urls, fails, comes_back)[0] == [0, 1, 1]
    assert len(away.mails) == len(there.mails) == 1


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("smtp://ana:pw@mail.example.com?to=a@b.c", "no password in it"),
        ("smtp://mail.example.com", "addresses to write to"),
        ("smtp://?to=a@b.c", "a host"),
        ("smtp://mail.example.com?to=a@b.c,d@e.f", "addresses"),
        ("smtp://mail.example.com?to=a@b.c%0aBcc:d@e.f", "addresses"),
        ("smtp://mail.example.com:x?to=a@b.c", "no address"),
        ("ftp://mail.example.com", "no URL"),
        ("mail.example.com", "no URL"),
    ],
)
def test_an_address_that_cannot_be_told_is_refused(url: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words) as refused:
        teller(url)
    assert "pw" not in str(refused.value)


def test_what_an_address_leaves_out() -> None:
    server = mail_server("smtps://ana%40example.com@mail.example.com?to=ben@example.com")
    assert (server.port, server.sender) == (465, "ana@example.com")
    assert mail_server("smtp://mail.example.com?to=a@b.c").sender == "tfgrpo@mail.example.com"
