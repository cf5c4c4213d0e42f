"""Where a monitor stands: all numbers, which alarms have fired, and what that means in words."""

import math
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from maccal.metrics import Bins
from maccal.metrics.binning import settled
from maccal.metrics.summaries import show
from maccal.monitoring.cells import total
from maccal.monitoring.expected import Expected, expected_accuracy
from maccal.monitoring.measured import Measured, measured
from maccal.monitoring.replay import Replay
from maccal.monitoring.settings import Settings

LOG10 = math.log(10)
TITLES = {
    "calibration": "the confidence is right",
    "accuracy": "the accuracy is high enough",
    "drift": "the confidences are spread as in the reference",
}


@dataclass(frozen=True)
class AlarmState:
    """One alarm: how much speaks against what it watches, and since when it is too much."""

    name: str
    e_value_log10: float  # now
    highest_log10: float  # so far
    threshold_log10: float
    fired_at: str | None  # the time of the event at which it fired
    rows: int  # that the alarm was told of until then, or until now


@dataclass(frozen=True)
class Standing:
    """All numbers of a monitor; `values` for JSON."""

    batches: int
    rows: int
    labelled: int
    waiting: int  # rows whose id waits for a label
    since: str | None
    until: str | None
    known: Measured | None  # of the labelled rows
    expected: Expected | None  # of the others
    alarms: tuple[AlarmState, ...]
    overconfident: bool | None

    @property
    def fired(self) -> bool:
        """Whether any alarm has fired."""
        return any(alarm.fired_at is not None for alarm in self.alarms)

    def values(self) -> dict[str, Any]:
        """As plain values."""
        found = asdict(self)
        found["known"] = None if self.known is None else self.known._asdict()
        found["expected"] = None if self.expected is None else self.expected._asdict()
        return {"fired": self.fired, "words": self.words(), "caution": self.caution(), **found}

    def words(self) -> list[str]:
        """One sentence per alarm."""
        return [self.sentence(alarm) for alarm in self.alarms]

    def caution(self) -> str | None:
        """Why the accuracy to expect cannot be relied on, if labels have shown that."""
        told = any(alarm.name == "calibration" and alarm.fired_at for alarm in self.alarms)
        if self.expected is None or not told:
            return None
        return (
            "The accuracy to expect takes the confidence as it was before the deployment, and the"
            " calibration alarm says that it has changed: do not rely on it."
        )

    def heading(self) -> str:
        """How many rows there are, and how many of them have labels."""
        labelled = f"{self.labelled:,} with labels, {self.waiting:,} waiting for theirs"
        batches = "batch" if self.batches == 1 else "batches"
        return f"{self.rows:,} rows in {self.batches:,} {batches}; {labelled}"

    def sentences(self) -> list[str]:
        """All of it in words: how many rows, how good they are, and what the alarms say."""
        found = [f"{self.heading()}."]
        if self.known is not None:
            accuracy, ece = show(self.known.accuracy, True), show(self.known.ece, True)
            said = show(self.known.confidence, True)
            found.append(f"It is right {accuracy} of the time and says {said}; ECE {ece}.")
        if self.expected is not None:
            low, high = show(self.expected.low, True), show(self.expected.high, True)
            without = f"Of the {self.expected.rows:,} rows without labels, {low} to {high}"
            found.append(f"{without} are expected to be right.")
        caution = self.caution()
        return [*found, *self.words(), *([caution] if caution else [])]

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return "\n".join(self.sentences())

    def _repr_html_(self) -> str:
        return "".join(f"<p>{escape(words)}</p>" for words in self.sentences())

    def sentence(self, alarm: AlarmState) -> str:
        """What an alarm says."""
        threshold = evidence(alarm.threshold_log10)
        if not alarm.rows:
            return f"No rows to tell whether {TITLES[alarm.name]}."
        if alarm.fired_at is None:
            seen = f"evidence against it {evidence(alarm.e_value_log10)}, alarm at {threshold}"
            return f"No alarm: {TITLES[alarm.name]}, as far as can be told ({seen})."
        what = {
            "calibration": "the model is not sure enough",
            "accuracy": "the accuracy is too low",
            "drift": "the confidences are not spread as in the reference",
        }[alarm.name]
        if alarm.name == "calibration" and self.overconfident:
            what = "the model is too sure"
        when = f"Alarm since {clock(alarm.fired_at)}, after {alarm.rows:,} rows"
        seen = f"evidence {evidence(alarm.highest_log10)}, alarm at {threshold}"
        return f"{when}: {what} ({seen})."


def clock(time: str) -> str:
    """A moment as people read it.

    >>> clock("2026-03-01T12:30:00+00:00")
    '2026-03-01 12:30 UTC'
    """
    return f"{time[:16].replace('T', ' ')} UTC"


def evidence(log10: float) -> str:
    """An e-value as people read it.

    >>> evidence(1.30103), evidence(-0.5), evidence(7.2), evidence(400.0)
    ('20', '0.32', '1.6e+07', '10^400')
    """
    if log10 > 300:
        return f"10^{log10:.0f}"
    value = 10**log10
    if value >= 10_000:
        return f"{value:.1e}"
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def standing(replay: Replay, settings: Settings) -> Standing:
    """The numbers of all events so far."""
    bins = settings.bins
    said = total([batch.said for batch in replay.batches], bins)
    known = total([batch.known for batch in replay.batches], bins)
    times = sorted(batch.stamp.time for batch in replay.batches)
    return Standing(
        batches=len(replay.batches),
        rows=said.n,
        labelled=known.n,
        waiting=len(replay.waiting),
        since=times[0] if times else None,
        until=times[-1] if times else None,
        known=measured(known, bins) if known.n else None,
        expected=of_unlabelled(said, known, settings),
        alarms=tuple(alarm_state(replay, name) for name in replay.alarms),
        overconfident=replay.overconfident,
    )


def of_unlabelled(said: Bins, known: Bins, settings: Settings) -> Expected | None:
    """The accuracy to expect of the rows that have no label."""
    unknown = without_labels(said, known)
    if not unknown.n:
        return None
    reference = None if settings.reference is None else settings.reference.fine(settings.bins)
    return expected_accuracy(unknown, settings.bins, reference)


def without_labels(said: Bins, known: Bins) -> Bins:
    """The sums of all rows less those of the labelled ones: as exact as both."""
    taken = known.sums.copy()
    taken[1] = 0
    return Bins(said.edges, settled(said.sums - taken), said.n - known.n)


def alarm_state(replay: Replay, name: str) -> AlarmState:
    course = replay.course[name]
    fired = replay.fired.get(name)
    last = fired or (course[-1] if course else None)
    now = course[-1].log if course else 0.0  # all money is there before the first bet
    return AlarmState(
        name,
        now / LOG10,
        max((money.log for money in course), default=0.0) / LOG10,
        replay.alarms[name].threshold / LOG10,
        None if fired is None else fired.stamp.time,
        0 if last is None else last.rows,
    )
