"""What happened in production, told by mail: one message to each address, over SMTP.

A mail server is named as a URL, as a webhook is: `smtp://USER@HOST:PORT?from=A&to=B&to=C`. The
password comes from the environment alone. Beyond this machine a connection is encrypted, from its
beginning with `smtps://`, else by STARTTLS (RFC 3207), or nothing is sent.
"""

from __future__ import annotations

import logging
import os
import smtplib
import ssl
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from urllib.parse import parse_qs, unquote

from tfgrpo.model.http_connection import LOOPBACK
from tfgrpo.store.errors import SettingsError
from tfgrpo.web_address import server_address

TIMEOUT = 20.0
PASSWORD = "TFGRPO_SMTP_PASSWORD"
"""The variable with the password of the mail server."""
SCHEMES = {"smtp": 587, "smtps": 465}
"""The schemes, and the ports that are meant where none is named (RFC 8314)."""
SUBJECT = 200
"""Characters of a subject; the whole is in the text."""
log = logging.getLogger("tfgrpo.mail")
HINT = "such as smtp://user@mail.example.com?to=ana@example.com"


@dataclass(frozen=True, slots=True)
class MailServer:
    """Where mail is handed in, as whom (without `user` no login is tried), from and to whom."""

    host: str
    port: int
    tls: bool
    user: str
    sender: str
    to: tuple[str, ...]


def is_mail(url: str) -> bool:
    """Returns whether a URL names a mail server."""
    return url.strip().lower().startswith(tuple(f"{scheme}:" for scheme in SCHEMES))


def mail_server(url: str) -> MailServer:
    """Returns the mail server that a URL names. Raises SettingsError."""
    try:
        parts = server_address(url, SCHEMES)
    except ValueError:
        raise SettingsError(
            "this is no address of a mail server, which has a host", hint=HINT
        ) from None
    host, port = parts.hostname or "", parts.port or SCHEMES[parts.scheme]
    if parts.password is not None:
        raise SettingsError(
            "the address of a mail server has no password in it", hint=f"set {PASSWORD}"
        )
    named = parse_qs(parts.query)
    user, to = unquote(parts.username or ""), tuple(named.get("to", ()))
    sender = named.get("from", [user if "@" in user else f"{user or 'tfgrpo'}@{host}"])[0]
    if not host or not to or not all(map(_is_address, (sender, *to))):
        raise SettingsError("a mail server has a host, and addresses to write to", hint=HINT)
    return MailServer(host, port, parts.scheme == "smtps", user, sender, to)


def _is_address(text: str) -> bool:
    name, at, host = text.rpartition("@")
    return bool(name and at and host) and text.isprintable() and not set(" ,;<>") & set(text)


def send_mail(server: MailServer, subject: str, text: str) -> str | None:
    """Sends a message; returns why that failed, None where the server took it for one address at
    least; those that it refused are logged. Neither the password nor what the server said to it is
    in either."""
    message = EmailMessage()
    line = " ".join(subject.split())
    message["Subject"] = line if len(line) <= SUBJECT else f"{line[: SUBJECT - 1]}…"
    message["From"], message["To"] = server.sender, ", ".join(server.to)
    message["Date"], message["Message-ID"] = formatdate(), make_msgid(domain="tfgrpo.invalid")
    message.set_content(text, cte="quoted-printable")
    try:
        with _connected(server) as connection:
            if server.user:
                connection.login(server.user, os.environ.get(PASSWORD, ""))
            refused = connection.send_message(message)
    except smtplib.SMTPAuthenticationError:
        return f"the mail server refused the user or the password of {PASSWORD}"
    except (smtplib.SMTPException, OSError, ValueError) as error:
        return str(error) or type(error).__name__
    for address, (status, _) in refused.items():
        log.warning("the mail server took no mail for %s: status %s", address, status)
    return None


def _connected(server: MailServer) -> smtplib.SMTP:
    if server.tls:
        context = ssl.create_default_context()
        return smtplib.SMTP_SSL(server.host, server.port, timeout=TIMEOUT, context=context)
    connection = smtplib.SMTP(server.host, server.port, timeout=TIMEOUT)
    try:
        connection.ehlo_or_helo_if_needed()
        if connection.has_extn("starttls"):
            connection.starttls(context=ssl.create_default_context())
        elif server.host not in LOOPBACK:
            raise smtplib.SMTPNotSupportedError("the mail server offers no encryption")
    except BaseException:
        connection.close()
        raise
    return connection
