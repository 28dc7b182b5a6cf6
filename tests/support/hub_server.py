"""A hub of one dataset on loopback: what `datasets` and huggingface_hub ask of the real one, and no more."""

import hashlib
import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

_COMMIT = "0123456789" * 4


@contextmanager
def hub_of(repository: str, files: Mapping[str, bytes]) -> Generator[str]:
    """Serve a dataset's files while the block runs; yields the address for HF_ENDPOINT."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            api, resolve = f"/api/datasets/{repository}", f"/datasets/{repository}/resolve/"
            if path.startswith(f"{api}/tree/"):
                tree = [{"type": "file", "path": name, **_describe(content)} for name, content in files.items()]
                self._answer(json.dumps(tree).encode())
            elif path.startswith(api):
                names = [{"rfilename": name} for name in files]
                self._answer(json.dumps({"id": repository, "sha": _COMMIT, "siblings": names}).encode())
            elif path.startswith(resolve):
                content = files.get(path.removeprefix(resolve).partition("/")[2])
                headers = {"X-Repo-Commit": _COMMIT}
                if content is None:
                    self._answer(b"", 404, headers | {"X-Error-Code": "EntryNotFound"})
                else:
                    self._answer(content, 200, headers | {"ETag": f'"{_describe(content)["oid"]}"'})
            else:
                self._answer(b"", 200 if path == "/" else 404)

        do_HEAD = do_GET  # noqa: N815  # the name that http.server calls

        def _answer(self, body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _describe(content: bytes) -> dict[str, str | int]:
    return {"oid": hashlib.sha1(content, usedforsecurity=False).hexdigest(), "size": len(content)}
