"""A trainer as seen from its folder: it saves slowly, keeps the last few saves, and saves one of them twice.

python trainer_process.py ROOT NUM_SAVES KEPT PAUSE_S
"""

import shutil
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.checkpoint_folders import make_checkpoint  # noqa: E402 - needs the path


def save(folder: Path, fill: int, pause_s: float) -> None:
    """Write a checkpoint as transformers' Trainer does, in halves of files."""
    whole = make_checkpoint(folder.with_name(f".making-{fill}"), num_shards=3, fill=fill)
    folder.mkdir(exist_ok=True)
    for path in sorted(whole.iterdir()):
        content = path.read_bytes()
        with (folder / path.name).open("wb") as file:
            file.write(content[: len(content) // 2])
            file.flush()
            time.sleep(pause_s)
            file.write(content[len(content) // 2 :])
    shutil.rmtree(whole)
    time.sleep(pause_s)
    (folder / "trainer_state.json").write_text(f'{{"global_step": {folder.name.rpartition("-")[2]}}}')


def main() -> None:
    root, num_saves, kept, pause_s = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    root.mkdir()
    for number in range(1, num_saves + 1):
        save(root / f"checkpoint-{number * 10}", 3 * number, pause_s)
        for old in range(1, number - kept + 1):
            shutil.rmtree(root / f"checkpoint-{old * 10}", ignore_errors=True)
    save(root / f"checkpoint-{num_saves * 10}", 3 * num_saves + 3, pause_s)
    (root / "half").mkdir()
    (root / "half" / "model.safetensors").write_bytes(b"\x00" * 100)


if __name__ == "__main__":
    main()
