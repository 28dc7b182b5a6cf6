"""What is wrong with a dataset, collected over all its rows and told in one error."""

from schemas.dataset import RefusedRow
from schemas.errors import RefusedRowsError

_NUM_SHOWN = 5


class Defects:
    """Keeps every defective row with the first reason against it."""

    def __init__(self, path: str) -> None:
        """Collect for the dataset at `path`."""
        self._path = path
        self._reasons: dict[int, str] = {}

    def __len__(self) -> int:
        """Return the number of rows with a defect."""
        return len(self._reasons)

    def __contains__(self, row: int) -> bool:
        """Whether a row has a defect."""
        return row in self._reasons

    @property
    def rows(self) -> tuple[RefusedRow, ...]:
        """The rows with a defect, in order."""
        return tuple(RefusedRow(row, reason) for row, reason in sorted(self._reasons.items()))

    def add(self, row: int, reason: str) -> None:
        """Record why a row (number from 1) cannot be used."""
        self._reasons.setdefault(row, reason)

    def raise_if_any(self, num_rows: int, advice: str) -> None:
        """Do nothing when every row is fine.

        Raises:
            RefusedRowsError: names how many of `num_rows` rows cannot be used, the first few, and what to do.
        """
        if not self._reasons:
            return
        rows = self.rows
        lines = [f"  row {row.row}: {row.reason}" for row in rows[:_NUM_SHOWN]]
        if len(rows) > _NUM_SHOWN:
            lines.append(f"  ... and {len(rows) - _NUM_SHOWN:,} more")
        shown = "\n".join(lines)
        raise RefusedRowsError(
            f"{self._path}: {len(rows):,} of {num_rows:,} rows cannot be used\n{shown}\n{advice}", rows
        )
