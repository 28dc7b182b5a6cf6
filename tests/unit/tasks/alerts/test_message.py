"""A message says what, how much, against what, since when and where; a name in it is a name."""

import pytest

from schemas.events import CheckpointLanded, DriftDetected
from tasks.alerts.message import compose

TRAINING = "team/trial0"


def drift(checkpoint: str) -> DriftDetected:
    return DriftDetected(
        checkpoint=checkpoint,
        global_step=1400,
        message="num_prompt_tokens by 0.41; v3 against v2",
        since="2026-11-01",
        link="/out/report.html",
        dataset="gsm8k",
        reference_version="v2",
        current_version="v3",
        features=("num_prompt_tokens",),
        broken_rules=(),
    )


def test_all_that_is_known_is_said() -> None:
    message = compose(drift("ckpt"), TRAINING, run_page="http://server/run/1")
    assert message.title == "Milepost: Drift of the validation set: ckpt"
    assert message.text.splitlines() == [
        "num_prompt_tokens by 0.41; v3 against v2",
        "checkpoint: ckpt (step 1,400)",
        "dataset: gsm8k",
        "since: 2026-11-01",
        "experiment: team/trial0",
        "see: /out/report.html",
        "run: http://server/run/1",
    ]


def test_what_is_unknown_has_no_line() -> None:
    landed = CheckpointLanded(
        checkpoint="c", global_step=None, message="c is whole", weight_digest=None, announced_by="watcher"
    )
    assert compose(landed, TRAINING, run_page="").text == "c is whole\ncheckpoint: c\nexperiment: team/trial0"


def test_a_long_path_keeps_the_end_that_names_the_checkpoint() -> None:
    message = compose(drift(f"/{'team/' * 50}checkpoint-100"), TRAINING, run_page="")
    assert len(message.title) == 120
    assert message.title.startswith("Milepost: Drift of the validation set: …")
    assert message.title.endswith("team/checkpoint-100")


@pytest.mark.parametrize("name", ["a\nreport: http://evil", "<!channel> <script>", "a\x1b[31m\x00b", "c" * 50_000])
def test_a_name_is_one_short_line_without_markup(name: str) -> None:
    message = compose(drift(name), TRAINING, run_page="")
    assert len(message.title) <= 120
    assert len(message.text.splitlines()) == 6
    assert len(message.text) < 5_000
    for letter in "<>\x1b\x00":
        assert letter not in message.title + message.text
    assert message.title.isprintable()


def test_a_long_message_has_a_line_for_each_part() -> None:
    parts = [f"feature_{number} by 0.41 (PSI, threshold 0.20, p = 0.0001)" for number in range(9)]
    event = drift("ckpt").model_copy(update={"message": "; ".join(parts)})
    lines = compose(event, TRAINING, run_page="").text.splitlines()
    assert lines[:9] == [parts[0], *(f"- {part}" for part in parts[1:])]
