"""All stored inputs of fuzzing pass: the small ones of each kind, and those that have found a defect."""

from __future__ import annotations

import pytest

from tests.fuzz.subjects import CORPORA, SUBJECTS

MAX_KEPT_BYTES = 200_000


@pytest.mark.requirement("fuzz.corpora")
@pytest.mark.parametrize("name", SUBJECTS)
def test_every_stored_input_passes_the_checks(name: str) -> None:
    with SUBJECTS[name].open_check() as check:
        for path in SUBJECTS[name].corpus:
            try:
                check(path.read_bytes())
            except Exception as error:
                raise AssertionError(f"{path.name} fails") from error


@pytest.mark.requirement("fuzz.corpora")
def test_the_corpora_stay_small() -> None:
    assert {folder.name for folder in CORPORA.iterdir()} == set(SUBJECTS)
    assert sum(path.stat().st_size for path in CORPORA.rglob("*") if path.is_file()) <= MAX_KEPT_BYTES
