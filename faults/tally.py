"""What is counted: the outcome of every trial, in one word, and the defects in full.

harmless, noticed, answered, refused, same, ...    as it should be (GOOD)
not promised                                       another result from a file without our checksum
silent                                             a wrong result without a word
crash                                              another error, a signal, a hang, too much memory
wrong                                              loud, but not as promised: litter, another exit
                                                   code, a dead end
"""

import re
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

DEFECTS = ("silent", "crash", "wrong")
KEPT = 25  # defects of one group that are described; all are counted
PLACE = re.compile(r"\S*maccal-faults-[^/\s]*/(lane\d+/)?(place/specimen/)?")  # of this run alone


@dataclass(frozen=True)
class Outcome:
    """One trial: of which group, how it ended, and how to see it again."""

    group: str
    word: str
    about: str = ""


@dataclass
class Tally:
    """The outcomes of one part."""

    seed: int
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    defects: list[Outcome] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)

    def add(self, outcome: Outcome) -> None:
        group = self.counts.setdefault(outcome.group, Counter())
        group[outcome.word] += 1
        known = sum(defect.group == outcome.group for defect in self.defects)
        if outcome.word in DEFECTS and known < KEPT:
            self.defects.append(Outcome(outcome.group, outcome.word, PLACE.sub("", outcome.about)))

    def count(self, *words: str) -> int:
        """Trials that ended so; without words all of them."""
        return sum(
            n
            for group in self.counts.values()
            for word, n in group.items()
            if not words or word in words
        )

    def json(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "count": self.count(),
            "seconds": round(time.monotonic() - self.started, 1),
            "outcomes": {
                group: dict(sorted(words.items())) for group, words in sorted(self.counts.items())
            },
            "defects": [vars(defect) for defect in self.defects],
            "figures": self.figures,
        }
