"""What is wrong with a dataset, collected over all its rows and told in one error."""

from schemas.errors import DatasetError

_NUM_SHOWN = 5


class Defects:
    """Counts every defective row and keeps the first few in words."""

    def __init__(self, path: str) -> None:
        """Collect for the dataset at `path`."""
        self._path = path
        self._shown: list[str] = []
        self._rows: set[int] = set()

    def __len__(self) -> int:
        """Return the number of rows with a defect."""
        return len(self._rows)

    def add(self, row: int, reason: str) -> None:
        """Record why a row (number from 1) cannot be used."""
        self._rows.add(row)
        if len(self._shown) < _NUM_SHOWN:
            self._shown.append(f"  row {row}: {reason}")

    def raise_if_any(self, num_rows: int, advice: str) -> None:
        """Do nothing when every row is fine.

        Raises:
            DatasetError: names how many of `num_rows` rows cannot be used, the first few, and what to do.
        """
        if not self._rows:
            return
        more = len(self._rows) - len(self._shown)
        lines = [*self._shown, *([f"  ... and {more:,} more"] if more > 0 else [])]
        raise DatasetError(
            f"{self._path}: {len(self._rows):,} of {num_rows:,} rows cannot be used\n"
            + "\n".join(lines)
            + f"\n{advice}"
        )
