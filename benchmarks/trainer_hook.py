"""What a training step pays for announcing a checkpoint, whatever the disk and the Prefect server do.

    python benchmarks/trainer_hook.py [--steps 500]

Trains nothing: a step multiplies matrices for some milliseconds, then calls the evaluator, which announces a checkpoint
every time, thousands of times as often as a trainer would. Each case runs in a process of its own: no hook at all; no
server; one that answers; one that refuses connections; one that takes them and never answers; an address from which
nothing comes back; a disk that takes not a byte. Exit code 1 when a call takes more than 10 ms on average, or one in a
hundred does. The slowest is shown and not judged: it is a pause of the machine as often as not.
"""

import argparse
import http.server
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from flows.evaluator import CheckpointAnnouncer, Evaluator, EvaluatorConfig, FinetuneSpec

LIMIT_MS: Final = 10.0
BLACK_HOLE: Final = "http://10.255.255.1:4200/api"
"""A private address that nobody has."""
_SIDE: Final = 300


class Sink(http.server.BaseHTTPRequestHandler):
    """A server that takes events."""

    def do_POST(self) -> None:
        """Take one."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Say nothing."""


@contextmanager
def listening(*, answers: bool) -> Generator[str]:
    """Yield the URL of a server that takes connections, and answers or never does."""
    if answers:
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sink) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield f"http://127.0.0.1:{server.server_port}/api"
            server.shutdown()
        return
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield f"http://127.0.0.1:{silent.getsockname()[1]}/api"


def unused_port() -> int:
    """Return a port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def take_steps(root: Path, num_steps: int, *, has_hook: bool) -> dict[str, float]:
    """Return the milliseconds of a step, and of the calls in it."""
    config = EvaluatorConfig(freq_steps=1) if has_hook else EvaluatorConfig()
    (root / "checkpoint").mkdir()
    announcer = CheckpointAnnouncer(root, folder="checkpoint", posts_events=True)
    evaluator = Evaluator(config, FinetuneSpec(1, num_steps, 1), announcer=announcer)
    matrix = np.random.default_rng(0).standard_normal((_SIDE, _SIDE), dtype=np.float32)
    product = np.empty_like(matrix)
    calls: list[float] = []
    started = time.perf_counter()
    for step in range(num_steps):
        np.matmul(matrix, matrix, out=product)
        before = time.perf_counter()
        evaluator.evaluate(None, 0, step, step)
        calls.append((time.perf_counter() - before) * 1e3)
    step_ms = (time.perf_counter() - started) * 1e3 / num_steps
    return {
        "step_ms": step_ms,
        "mean_ms": float(np.mean(calls)),
        "p99_ms": float(np.percentile(calls, 99)),
        "slowest_ms": max(calls),
    }


def run_case(url: str, num_steps: int, *options: str) -> dict[str, float]:
    """Return what `take_steps` measures in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, __file__, "--steps", str(num_steps), "--inside", folder, *options],
            env=os.environ | {"PREFECT_API_URL": url, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
    measured: dict[str, float] = json.loads(done.stdout)
    return measured | {"lines": len(done.stderr.splitlines())}


def main() -> int:
    """Measure; exit 1 when a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--no-hook", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--full-disk", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside is not None:
        if arguments.full_disk:
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        print(json.dumps(take_steps(arguments.inside, arguments.steps, has_hook=not arguments.no_hook)))
        return 0
    with listening(answers=True) as healthy, listening(answers=False) as silent:
        cases = {
            "no hook": run_case("", arguments.steps, "--no-hook"),
            "no server": run_case("", arguments.steps),
            "healthy server": run_case(healthy, arguments.steps),
            "dead server": run_case(f"http://127.0.0.1:{unused_port()}/api", arguments.steps),
            "silent server": run_case(silent, arguments.steps),
            "black hole": run_case(BLACK_HOLE, arguments.steps),
            "full disk": run_case("", arguments.steps, "--full-disk"),
        }
    print(f"{'case':<16}{'step, ms':>10}{'call, mean ms':>15}{'p99 ms':>9}{'slowest ms':>12}{'log lines':>11}")
    for name, row in cases.items():
        print(
            f"{name:<16}{row['step_ms']:>10.2f}{row['mean_ms']:>15.3f}{row['p99_ms']:>9.2f}{row['slowest_ms']:>12.2f}"
            f"{row['lines']:>11.0f}"
        )
    return int(any(max(row["mean_ms"], row["p99_ms"]) > LIMIT_MS for row in cases.values()))


if __name__ == "__main__":
    sys.exit(main())
