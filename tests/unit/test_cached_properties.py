"""Properties that are computed once."""

from __future__ import annotations

import threading

import pytest

from tests.waiting import CEILING
from tools.machine.unlocked_cached_property import cached_property


class Folder:
    def __init__(self, gate: threading.Event | None = None) -> None:
        self.gate = gate
        self.begun = threading.Event()
        self.looks = 0

    @cached_property
    def entries(self) -> int:
        self.begun.set()
        if self.gate is not None:
            self.gate.wait()
        self.looks += 1
        return self.looks


@pytest.mark.requirement("scarcity.hung_folder")
def test_an_object_whose_folder_hangs_blocks_no_other_object() -> None:
    gate, counts = threading.Event(), list[int]()
    stuck_folder, free_folder = Folder(gate), Folder()

    def look(folder: Folder) -> None:
        counts.append(folder.entries)

    threads = [threading.Thread(target=look, args=(folder,)) for folder in (stuck_folder, free_folder)]
    try:
        threads[0].start()
        assert stuck_folder.begun.wait(CEILING)
        threads[1].start()
        threads[1].join(CEILING)
        assert counts == [1]
    finally:
        gate.set()
        for thread in threads:
            thread.join()
    assert (free_folder.entries, free_folder.looks) == (1, 1)
