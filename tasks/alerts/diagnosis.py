"""What `milepost doctor` says of alerts: those that their targets do not have."""

from pathlib import Path

from schemas.diagnosis import Check, CheckStatus
from tasks.alerts.delivery import describe_undelivered, read_undelivered
from tasks.alerts.ledger import alert_folder


def check_alerts(fileroot: Path) -> list[Check]:
    """Return a warning that names what waits; nothing where all is delivered."""
    folder = alert_folder(fileroot)
    waiting = read_undelivered(folder)
    if not waiting:
        return []
    return [
        Check(
            name="alerts",
            status=CheckStatus.WARNING,
            detail="; ".join(map(describe_undelivered, waiting)),
            fix=f"see that the targets take messages; remove a file of {folder} to give its alert up",
        )
    ]
