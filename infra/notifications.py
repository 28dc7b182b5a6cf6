"""Sends one message to one target: a webhook by HTTP, every other kind by apprise.

Owns the request; decides neither what is sent nor when it is sent again. An address holds a token: no error shows it.
"""

import logging
import re
from typing import Final

from schemas.alerts import TargetKind
from schemas.errors import ConfigError, TransientError

_TIMEOUT_S: Final = 10.0
"""Longest wait for a target, so that one that hangs does not hold up an evaluation."""
_EXAMPLES: Final[dict[TargetKind, str]] = {
    "slack": "https://hooks.slack.com/services/…",
    "email": "mailtos://user:password@host?to=…",
}
_TOKEN: Final = re.compile(r"[^\s/?&=@:,]{4,}")
"""A part of an address that may be a secret."""


def check_address(kind: TargetKind, source: str, address: str) -> None:
    """Check that an address is one of its kind; `source` names where it is kept.

    Raises:
        ConfigError: it is not; it is not shown.
    """
    if kind == "webhook":
        if not address.startswith(("http://", "https://")):
            raise ConfigError(f"alerts.webhook: what {source} holds is no http(s) URL; it is not shown here")
        return
    from apprise import Apprise

    if not Apprise().add(address):
        raise ConfigError(
            f"alerts.{kind}: what {source} holds is no address that apprise knows, such as "
            f"{_EXAMPLES.get(kind, 'ntfy://topic')}; it is not shown here"
        )


def send_message(kind: TargetKind, address: str, *, title: str, text: str) -> None:
    """Send one message, once.

    Raises:
        TransientError: the target did not take it.
    """
    if kind == "webhook":
        _post(address, title, text)
    else:
        _notify(kind, address, title, text)


def _post(address: str, title: str, text: str) -> None:
    import httpx

    try:
        reply = httpx.post(address, json={"title": title, "message": text}, timeout=_TIMEOUT_S)
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as exc:  # the last is of a host name
        raise TransientError(
            f"the webhook cannot be reached ({_hide(str(exc) or type(exc).__name__, address)})"
        ) from None
    if not reply.is_success:
        reason = httpx.codes.get_reason_phrase(reply.status_code)  # empty for those of proxies, such as 521
        raise TransientError(f"the webhook answers {reply.status_code} {reason}".rstrip())


def _notify(kind: TargetKind, address: str, title: str, text: str) -> None:
    from apprise import Apprise, NotifyFormat
    from apprise.logger import LogCapture

    if kind == "email" and "format=" not in address:
        address += f"{'&' if '?' in address else '?'}format=text"  # the default is HTML, where line breaks are nothing
    service = Apprise()
    service.add(address)
    with LogCapture(level=logging.WARNING, fmt="%(message)s") as said:
        if service.notify(body=text, title=title, body_format=NotifyFormat.TEXT):
            return
        said.seek(0)
        reason = _hide(" ".join(said.read().split()), address)
    raise TransientError(f"apprise could not deliver it ({reason or 'no reason given'})")


def _hide(reason: str, address: str) -> str:
    """Return a reason without any part of the address, but for its scheme and host."""
    _, _, rest = address.partition("://")
    secrets = _TOKEN.findall(rest.partition("/")[2]) + _TOKEN.findall(rest.rpartition("@")[0])
    for secret in sorted(secrets, key=len, reverse=True):
        reason = reason.replace(secret, "…")
    return reason[:300]
