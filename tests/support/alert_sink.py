"""A local HTTP server that keeps what alerts post to it."""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Sink(ThreadingHTTPServer):
    """Takes what is posted to it; under /broken it answers 500 until it is mended."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Post)
        self.posted: list[tuple[str, str]] = []
        self.is_mended = False

    @property
    def place(self) -> str:
        """Its host and port."""
        return f"127.0.0.1:{self.server_address[1]}"

    def bodies(self, path: str, words: str = "") -> list[str]:
        """What has come to a path and holds some words."""
        return [body for at, body in list(self.posted) if at == path and words in body]


class _Post(BaseHTTPRequestHandler):
    server: Sink

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        self.server.posted.append((self.path, body))
        self.send_response(500 if self.path == "/broken" and not self.server.is_mended else 200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        return
