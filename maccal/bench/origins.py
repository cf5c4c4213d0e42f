"""Which second stages stand on another training of their stage I than the row beside them.

origins(book)     their names, and how many rows do not say what they stand on

Their numbers are right; but a difference from the network as trained, or from another second stage,
is then one of two trainings too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from maccal.bench.lines import Book, Rows
from maccal.bench.titles import counted
from maccal.runs.origin import stands_on

NAMED = 3  # rows, beyond which they are counted


@dataclass(frozen=True)
class Origins:
    """Names of rows that stand on another network; and of how many that is not known."""

    elsewhere: Sequence[str]
    unknown: int

    @property
    def words(self) -> str:
        """
        >>> Origins(["a"], 0).words
        '1 second stage stands on another training of its stage I than the one shown here: a.'
        >>> Origins([], 2).words
        'Of 2 second stages the rows do not say on which training of stage I they stand.'
        """
        found = []
        if self.elsewhere:
            one = len(self.elsewhere) == 1
            stand = "stands" if one else "stand"
            which = f"another training of {'its' if one else 'their'} stage I"
            shown = ", ".join(self.elsewhere[:NAMED])
            more = ", …" if len(self.elsewhere) > NAMED else ""
            count = counted(len(self.elsewhere), "second stage")
            found.append(f"{count} {stand} on {which} than the one shown here: {shown}{more}.")
        if self.unknown:
            count = counted(self.unknown, "second stage")
            found.append(f"Of {count} the rows do not say on which training of stage I they stand.")
        return " ".join(found)


def origins(rows: Rows) -> Origins:
    book = Book.of(rows)
    elsewhere = []
    unknown = 0
    for line in book.lines:
        first = book.get(line.setting, line.made.stage1)
        if line.made.second is None or first is None:
            continue
        for seed in line.runs.keys() & first.runs.keys():
            known = stands_on(line.runs[seed], first.runs[seed])
            if known is False:
                elsewhere.append(line.runs[seed].name)
            unknown += known is None
    return Origins(sorted(elsewhere), unknown)
