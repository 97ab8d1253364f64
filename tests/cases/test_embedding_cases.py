"""Cases of area `embedding`: mistakes that other projects shipped, each with the outcome that is asked of us."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from chunking.policy import Embedding, PolicyError, load_policy
from streams.embedders import open_embedder
from streams.embedders.base import CheckedEmbedder
from streams.errors import PoisonRecord, Unavailable
from streams.settings import EmbedderSettings

CASES = Path(__file__).resolve().parents[2] / "../shared/cases/cases.jsonl"
HERE = {"EM-01", "EM-03", "EM-04"}


class Spelling:
    """A model whose vectors spell their text: eight numbers, the first code points. Answers `short` vectors too few or too many."""

    model, dimensions, max_tokens = "spelling", 8, None

    def __init__(self, *surplus: int) -> None:
        self.surplus = list(surplus)

    def count_tokens(self, text: str) -> int:
        return len(text)

    async def vectors(self, texts):
        right = [spelled(text) for text in texts]
        change = self.surplus.pop(0) if self.surplus else 0
        return right[:change] if change < 0 else right + right[:change]


def spelled(text: str) -> list[float]:
    return [float(ord(character)) for character in text[:8].ljust(8)]


def test_every_case_of_this_area_has_a_test_here():
    if not CASES.is_file():
        pytest.skip("the shared cases are not beside this checkout")
    lines = CASES.read_text(encoding="utf-8").split("\n")  # not splitlines: a case holds U+2028
    known = {case["id"] for case in map(json.loads, filter(None, lines)) if case["area"] == "embedding"}
    assert known == HERE


async def test_em_01_another_number_of_vectors_is_never_paired_by_position():
    texts = [f"text {number}" for number in range(25)]
    embedder = CheckedEmbedder(Spelling(20 - 25, 1 - 25, 26 - 25))
    for _ in range(3):
        with pytest.raises(Unavailable, match="another number of vectors than texts"):
            await embedder.embed(texts)
    assert [vector.tolist() for vector in await embedder.embed(texts)] == [spelled(text) for text in texts]


async def test_em_03_blank_inputs_do_not_shift_their_neighbours():
    texts = ["alpha", "   ", "beta", "", "gamma"]
    slots = await CheckedEmbedder(Spelling()).slots(texts)
    assert [None if slot is None else slot.tolist() for slot in slots] == [
        spelled("alpha"), None, spelled("beta"), None, spelled("gamma"),
    ]  # fmt: skip


@pytest.fixture
def short_model(tmp_path):
    """The offline model told to read 512 tokens, as the case has it."""
    import shutil

    from streams.embedded.model import offline_model_directory

    shutil.copytree(offline_model_directory(), tmp_path / "model")
    config = tmp_path / "model" / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "model_max_length": 512}))
    return open_embedder(EmbedderSettings(directory=tmp_path / "model"), Embedding(model="case/em-04"))


async def test_em_04_a_text_over_the_models_limit_is_refused_with_its_size_never_cut(short_model):
    texts = ["common start " * 600 + needle for needle in ("needle one", "needle two")]
    assert short_model.max_tokens == 512
    for text in texts:
        with pytest.raises(PoisonRecord, match="longer than the model reads") as refusal:
            await short_model.embed([text])
        assert refusal.value.facts["tokens"] == short_model.count_tokens(text) > 1200
        assert refusal.value.facts["limit"] == 512
    within = [text[: len(text) // 4] + text[-11:] for text in texts]
    one, two = await short_model.embed(within)
    assert not np.array_equal(one, two)


def test_em_04_a_policy_above_the_models_limit_is_refused_when_it_is_loaded():
    with pytest.raises(PolicyError, match=r"limits\.max_tokens 600 is above the model's 512"):
        load_policy("name: p\nversion: 1\nlimits: {max_tokens: 600}\nembedding: {max_tokens: 512}\n")
