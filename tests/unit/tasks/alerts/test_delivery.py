"""A message waits until its target has it, is asked for with growing pauses, and is sent once."""

import os
import threading
from datetime import UTC, datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from infra.notifications import check_address, send_message
from schemas.alerts import AlertRecord, AlertsConfig, Delivery
from schemas.diagnosis import CheckStatus
from schemas.errors import ConfigError, TransientError
from schemas.events import ConsistencyViolated, EvaluationFailed
from tasks.alerts.delivery import deliver_due, enter_waiting, plan_deliveries, read_undelivered
from tasks.alerts.diagnosis import check_alerts
from tasks.alerts.ledger import alert_folder, make_record
from tasks.alerts.task import key_of_delivery

pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")  # in apprise

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
FAILED = EvaluationFailed(checkpoint="c", global_step=3, message="no", run_id="r1", dataset="d", error="WorkerError")
ALERTS = AlertsConfig.model_validate(
    {
        "slack": {"secret": "env:SLACK"},
        "webhook": {"secret": "block:pager", "events": ["failed"]},
        "email": {"secret": "env:MAIL", "events": "drift"},
    }
)


class Targets:
    """Takes messages, but for targets that are away."""

    def __init__(self) -> None:
        self.away: set[str] = set()
        self.asked: list[str] = []

    def send(self, delivery: Delivery, record: AlertRecord) -> None:
        self.asked.append(delivery.target)
        if delivery.target in self.away:
            raise TransientError(f"{record.title} is not taken")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A ledger with one alert for two targets."""
    record = make_record(alert_folder(tmp_path), FAILED, training="e/t", silence=timedelta(0), now=NOW)
    assert record is not None
    deliveries = plan_deliveries(FAILED, ALERTS, now=NOW)
    record = record.model_copy(update={"deliveries": deliveries, "told": False, "title": "Failed: c"})
    assert enter_waiting(alert_folder(tmp_path), record)
    return alert_folder(tmp_path)


def test_each_target_gets_what_it_asks_for_and_nothing_twice() -> None:
    assert [each.target for each in plan_deliveries(FAILED, ALERTS, now=NOW)] == ["slack", "webhook"]
    # slack takes `inconsistency` too, which has said why the evaluation failed
    told = plan_deliveries(FAILED, ALERTS, now=NOW, told_by="inconsistency")
    assert [each.target for each in told] == ["webhook"]
    disagree = ConsistencyViolated(
        checkpoint="c", global_step=1, message="", run_id="r", dataset="d", replicas=(0,), consequence="fail"
    )
    assert [each.target for each in plan_deliveries(disagree, ALERTS, now=NOW)] == ["slack"]


def test_a_message_is_sent_once_and_then_nothing_waits(folder: Path) -> None:
    targets = Targets()
    assert deliver_due(folder, targets.send, now=NOW) is None
    assert deliver_due(folder, targets.send, now=NOW + timedelta(days=1)) is None
    assert targets.asked == ["slack", "webhook"]
    assert [path.suffix for path in folder.iterdir()] == [".json"]
    assert make_record(folder, FAILED, training="e/t", silence=timedelta(0), now=NOW) is None


def test_a_target_that_is_away_is_asked_after_growing_pauses_and_the_others_are_not(folder: Path) -> None:
    targets = Targets()
    targets.away = {"webhook"}
    now, pauses = NOW, list[timedelta]()
    for _ in range(9):
        due = deliver_due(folder, targets.send, now=now)
        assert due is not None
        assert deliver_due(folder, targets.send, now=due - timedelta(seconds=1)) == due  # not before
        pauses.append(due - now)
        now = due
    assert pauses == [MINUTE * minutes for minutes in (1, 2, 4, 8, 16, 32, 60, 60, 60)]
    assert targets.asked == ["slack", *["webhook"] * 9]
    # the cause is met again meanwhile: it waits already
    assert make_record(folder, FAILED, training="e/t", silence=timedelta(0), now=now) is None
    (check,) = check_alerts(folder.parent)
    assert check.status is CheckStatus.WARNING
    assert "Failed: c waits for webhook: 9 attempts, Failed: c is not taken, next 2026-01-01 04:03 UTC" in check.detail
    targets.away.clear()
    assert deliver_due(folder, targets.send, now=now) is None
    assert targets.asked == ["slack", *["webhook"] * 10]
    assert check_alerts(folder.parent) == []


def test_a_target_that_stays_away_is_given_up_after_a_week_and_named(folder: Path) -> None:
    targets = Targets()
    targets.away = {"slack", "webhook"}
    assert deliver_due(folder, targets.send, now=NOW + timedelta(days=8)) is None
    assert deliver_due(folder, targets.send, now=NOW + timedelta(days=9)) is None
    assert targets.asked == ["slack", "webhook"]
    assert "given up" in check_alerts(folder.parent)[0].detail
    assert len(read_undelivered(folder)) == 1


def test_what_another_process_sends_is_left_to_it_until_it_is_dead(folder: Path) -> None:
    targets = Targets()
    (marker,) = folder.glob("*.waiting")
    sending = marker.rename(marker.with_suffix(".sending"))
    assert deliver_due(folder, targets.send, now=NOW) is None
    assert targets.asked == []
    os.utime(sending, (0, 0))
    deliver_due(folder, targets.send, now=NOW)
    assert targets.asked == ["slack", "webhook"]


def test_an_alert_whose_record_is_removed_is_given_up(folder: Path) -> None:
    (record,), (marker,) = folder.glob("*.json"), folder.glob("*.waiting")
    record.unlink()
    os.utime(marker, (0, 0))
    assert deliver_due(folder, Targets().send, now=NOW) is None
    assert list(folder.iterdir()) == []


def test_two_processes_that_meet_a_cause_at_once_send_it_once(folder: Path) -> None:
    targets = Targets()
    (late,) = read_undelivered(folder)  # the second process has not seen the first one's record
    deliver_due(folder, targets.send, now=NOW)
    assert enter_waiting(folder, late)
    assert deliver_due(folder, targets.send, now=NOW) is None
    assert targets.asked == ["slack", "webhook"]
    assert check_alerts(folder.parent) == []


def test_a_marker_that_cannot_be_removed_ends_nothing(folder: Path) -> None:
    stuck = folder / "0.waiting"
    stuck.mkdir()
    os.utime(stuck, (0, 0))
    targets = Targets()
    assert deliver_due(folder, targets.send, now=NOW) is None
    assert targets.asked == ["slack", "webhook"]


@pytest.mark.parametrize(
    ("kind", "address"),
    [("webhook", "ftp://h/t0ken-of-mine"), ("slack", "t0ken-of-mine"), ("email", "nosuch://t0ken-of-mine")],
)
def test_an_address_that_is_none_is_not_shown(kind: str, address: str) -> None:
    with pytest.raises(ConfigError, match="env:X") as caught:
        check_address(kind, "env:X", address)  # pyright: ignore[reportArgumentType]
    assert "t0ken" not in str(caught.value)


def test_a_failed_delivery_does_not_show_the_token() -> None:
    for kind, address in (
        ("webhook", "http://127.0.0.1:9/hook/t0ken?key=s3cret"),
        ("apprise", "json://127.0.0.1:9/t0ken"),
    ):
        with pytest.raises(TransientError) as caught:
            send_message(kind, address, title="t", text="x")  # pyright: ignore[reportArgumentType]
        assert "t0ken" not in str(caught.value)
        assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(("status", "said"), [(500, "500 Internal Server Error"), (521, "521"), (301, "301 Moved")])
def test_a_webhook_that_refuses_is_named_by_its_status(status: int, said: str) -> None:
    """Proxies answer with numbers that no standard names."""

    class Refusing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response_only(status, "of its own words")
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        with pytest.raises(TransientError, match=f"the webhook answers {said}"):
            send_message("webhook", f"http://127.0.0.1:{server.server_port}/t0ken", title="t", text="x")
        thread.join()


@pytest.mark.parametrize(
    "address", ["http://xn--a/t0ken", "http://[::1/t0ken", "http://a..b/t0ken", "http://h:x/t0ken"]
)
def test_an_address_that_leads_nowhere_is_an_undelivered_message(address: str) -> None:
    with pytest.raises(TransientError, match="cannot be reached") as caught:
        send_message("webhook", address, title="t", text="x")
    assert "t0ken" not in str(caught.value)


def test_each_time_of_a_delivery_has_a_run_of_its_own() -> None:
    """A second message that is due in the same minute is planned too, and the same one once."""
    folder = Path("/out")
    times = [NOW, NOW + timedelta(seconds=20), NOW + timedelta(microseconds=1)]
    assert len({key_of_delivery(folder, time) for time in times}) == 3
    elsewhere = NOW.astimezone(timezone(timedelta(hours=2)))
    assert key_of_delivery(folder, elsewhere) == key_of_delivery(folder, NOW)
