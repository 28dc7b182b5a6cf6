"""Seeds and prompt hashes depend on content alone."""

from hypothesis import given
from hypothesis import strategies as st

from schemas.identity import prompt_hash, sample_seed

TOKENS = st.lists(st.integers(0, 2**31 - 1))


@given(st.integers(), st.text(max_size=40), st.integers(0, 1000))
def test_a_seed_is_stable_and_fits_a_signed_64_bit_integer(run_seed: int, item_id: str, repeat: int) -> None:
    seed = sample_seed(run_seed, item_id, repeat)
    assert seed == sample_seed(run_seed, item_id, repeat)
    assert 0 <= seed < 2**63


@given(st.integers(), st.text(max_size=40))
def test_repeats_and_neighbouring_runs_have_seeds_of_their_own(run_seed: int, item_id: str) -> None:
    seeds = {sample_seed(run_seed + offset, item_id, repeat) for repeat in range(64) for offset in (0, 1)}
    assert len(seeds) == 128


def test_a_seed_keeps_its_value_across_releases() -> None:
    assert sample_seed(1, "gsm8k-0", 0) == 7004349394139644671


@given(TOKENS, TOKENS)
def test_prompts_share_a_hash_only_when_their_tokens_are_equal(first: list[int], second: list[int]) -> None:
    assert (prompt_hash(first) == prompt_hash(second)) == (first == second)
