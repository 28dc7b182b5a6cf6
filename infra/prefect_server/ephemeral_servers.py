"""Which Prefect servers this process has started for itself: they end with it, and nobody else listens to them."""

from typing import Final

_urls: Final[set[str]] = set()


def note_own_server(api_url: str) -> None:
    """Remember that this process has started the server."""
    _urls.add(api_url)


def is_own_server(api_url: str) -> bool:
    """Whether this process has started the server: it ends with this command, and nobody else uses it."""
    return api_url in _urls
