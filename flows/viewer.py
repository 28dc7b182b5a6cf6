"""The pages of `milepost view`: the report over the whole store and its samples, for whoever has the token.

Reads the store and never writes to it. Answers on one address only and to nobody without the token, as completions and
private test sets are for the user's eyes.
"""

import secrets
from dataclasses import dataclass, field
from hashlib import blake2b
from threading import Lock
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from infra.fileroot.run_directory import run_at, unfinished_runs
from infra.store import Store
from schemas.errors import ConfigError, StoreError
from tasks.report.overview_page import make_report, render_report
from tasks.report.sample_search import SampleQuery, find_samples, read_sample
from tasks.report.series import Overview, read_overview

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    Endpoint = Callable[[Request], Awaitable[Response]]

_COOKIE: Final = "milepost-view"
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_RUN_PAGE_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@dataclass(slots=True)
class Viewer:
    """What the pages are made from; the page of one state of the store is made once."""

    store: Store
    """Where the runs are published."""
    names: tuple[str, ...]
    """Runs and experiments to show; empty: all."""
    _made_of: str = ""
    _overview: Overview | None = None
    _page: str = ""
    _lock: Lock = field(default_factory=Lock)

    def version(self) -> str:
        """Return a digest of which runs are published.

        Raises:
            StoreError: the store cannot be read.
        """
        return blake2b("\n".join(self.store.run_names()).encode(), digest_size=8).hexdigest()

    def overview(self) -> Overview:
        """Return what is published now."""
        self.page()
        if self._overview is None:
            raise ConfigError("no page has been made")
        return self._overview

    def page(self) -> str:
        """Return the page of what is published now.

        Raises:
            ConfigError: nothing is published.
            StoreError: the store cannot be read.
        """
        with self._lock:
            version = self.version()
            if version != self._made_of:
                overview = read_overview(self.store, self.names)
                report = make_report(self.store, overview, server_version=version)
                self._page = render_report(report, title=", ".join(self.names or overview.experiments))
                self._overview, self._made_of = overview, version
            return self._page

    def show_front(self, _: "Request") -> Response:
        """Answer with the page."""
        return HTMLResponse(self.page())

    def show_samples(self, request: "Request") -> Response:
        """Answer with the samples that a query finds, as JSON."""
        known = SampleQuery.__dataclass_fields__
        asked = {name: value for name, value in request.query_params.items() if name in known}
        return JSONResponse(find_samples(self.store, self.overview(), SampleQuery(**asked)))

    def show_sample(self, request: "Request") -> Response:
        """Answer with one sample, as JSON."""
        asked = request.query_params
        repeat = asked.get("repeat", "")
        if not repeat.isascii() or not repeat.isdigit():
            raise ConfigError(f"repeat must be a whole number, got {repeat!r}")
        return JSONResponse(read_sample(self.store, asked.get("run_id", ""), asked.get("item_id", ""), int(repeat)))

    def show_run(self, request: "Request") -> Response:
        """Answer with the page that a run left in its folder."""
        run_id = request.path_params["run_id"]
        page = run_at(self.store.root.parent, run_id).page_path if run_id in self.store.run_names() else None
        if page is None or not page.is_file():
            return PlainTextResponse(f"run {run_id} has no page", status_code=404)
        return FileResponse(page, media_type="text/html", headers={"Content-Security-Policy": _RUN_PAGE_POLICY})

    def show_state(self, _: "Request") -> Response:
        """Answer with the state of the store and what is evaluated at this moment, as JSON."""
        unfinished = [
            f"{state.checkpoint}: {state.status.value} since {state.started_at:%Y-%m-%d %H:%M} UTC (run {state.run_id})"
            for state in unfinished_runs(self.store.root.parent)
        ]
        return JSONResponse({"version": self.version(), "unfinished": unfinished})


def make_app(viewer: Viewer, *, address: str, token: str) -> Starlette:
    """Return the pages as an ASGI application.

    Args:
        viewer: What is shown.
        address: Host and port that a browser must ask for; other Host headers are rejected, which keeps pages of other
            names that resolve to this machine out.
        token: Secret that opens the pages, once as `?token=` and then by a cookie.
    """

    def guarded(answer: "Callable[[Request], Response]") -> "Endpoint":
        async def endpoint(request: "Request") -> Response:
            response = _check(request, address, token) or await run_in_threadpool(_answered, answer, request)
            response.headers.update(_HEADERS)
            return response

        return endpoint

    pages = {
        "/": viewer.show_front,
        "/api/samples": viewer.show_samples,
        "/api/sample": viewer.show_sample,
        "/api/state": viewer.show_state,
        "/run/{run_id}": viewer.show_run,
    }
    return Starlette(routes=[Route(path, guarded(answer), methods=["GET"]) for path, answer in pages.items()])


def _check(request: "Request", address: str, token: str) -> Response | None:
    """Return the answer to a request without the token, or with it in the address; None where the page is due."""
    if request.headers.get("host") != address:
        return PlainTextResponse(f"ask for http://{address}", status_code=400)
    in_address = request.query_params.get("token", "") if request.url.path == "/" else ""
    given = in_address or request.cookies.get(_COOKIE, "")
    if not secrets.compare_digest(given.encode(), token.encode()):
        return PlainTextResponse("open the address that `milepost view` printed, with its token", status_code=403)
    if not in_address:
        return None
    redirect = RedirectResponse("/", status_code=303)  # so that the token stays out of the history
    redirect.set_cookie(_COOKIE, token, httponly=True, samesite="strict")
    return redirect


def _answered(answer: "Callable[[Request], Response]", request: "Request") -> Response:
    try:
        return answer(request)
    except (ConfigError, StoreError) as exc:
        return PlainTextResponse(str(exc), status_code=404)
