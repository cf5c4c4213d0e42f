"""The verb `maccal monitor`: a deployed model watched, batch by batch."""

from pathlib import Path
from typing import Any

import tyro
from rich.table import Table
from rich.text import Text

from maccal.cli.flags import refuse
from maccal.cli.output import answer, note, tell
from maccal.cli.printing import right_aligned
from maccal.evaluation.tables import Kind
from maccal.io import FileError, check_folder, write
from maccal.monitoring.files import FromFile, read_batch, read_late
from maccal.monitoring.monitor import Monitor
from maccal.monitoring.settings import Settings
from maccal.monitoring.standing import Standing
from maccal.report.monitor import monitor_page, number_rows

FIRED = 3  # the exit code when an alarm has fired


def monitor(
    folder: tyro.conf.Positional[Path],
    new: bool = False,
    reference: Path | None = None,
    alpha: float | None = None,
    tolerance: float | None = None,
    least_accuracy: float | None = None,
    bins: int | None = None,
    add: Path | None = None,
    labels: Path | None = None,
    merge: Path | None = None,
    time: str | None = None,
    name: str | None = None,
    kind: Kind | None = None,
    page: Path | None = None,
) -> None:
    """Watch a deployed model: add batches of predictions, labels as they come, and see alarms.

    Exit code 3 if an alarm has fired, and 0 if none has.

    Args:
        folder: the state of the monitor.
        new: make it; the next five are fixed then.
        reference: predictions and labels from before the deployment, .npz, .csv or .csv.gz.
        alpha: chance that an alarm ever fires falsely, 0 to 1; 0.05 by default.
        tolerance: a gap between confidence and accuracy that does not matter; 0.02 by default.
        least_accuracy: alarm if the accuracy falls below it, such as 0.9.
        bins: number of bins of confidence; 15 by default.
        add: a batch: logits or probs, with labels and ids if there are some, .npz, .csv or .csv.gz.
        labels: labels that came late: ids and labels, .npz, .csv or .csv.gz.
        merge: the folder of another monitor, whose events are taken over.
        time: when the batch was predicted, or the labels came, such as 2026-03-01T12:00; else now.
        name: word for the batch or labels, to tell them from others that are equal.
        kind: which to use where a file has both logits and probs.
        page: write the course over time to this .html file.
    """
    if page is not None:
        check_page(page, folder)
    changes = Changes(add, labels, merge, time, name or "", kind)
    if new:
        watch = made(folder, reference, kind, alpha, tolerance, least_accuracy, bins)
    else:
        where = "a monitor that is there: its settings are fixed with --new"
        given = {"alpha": alpha, "tolerance": tolerance, "bins": bins}
        refuse(where, reference=reference, least_accuracy=least_accuracy, **given)
        watch = Monitor.open(folder)
    if add is None and labels is None:
        refuse("a command without --add or --labels", time=time, name=name)
    if add is None and reference is None:
        refuse("a command without --add or --reference", kind=kind)
    changes.rehearse(watch)
    changes.make(watch)
    found = watch.standing()
    if page is not None:
        write(page, monitor_page(watch, folder.resolve().name))
    show_standing(found)
    answer(found.values())
    if page is not None:
        note(f"page: {page}")
    if found.fired:
        raise SystemExit(FIRED)


def check_page(page: Path, folder: Path) -> None:
    """FileError for a page that would take the place of something else; before anything is done."""
    if page.suffix.lower() not in (".html", ".htm"):
        raise FileError(page, "the page is HTML; pass a name that ends in .html")
    if page.resolve().is_relative_to(folder.resolve()):
        raise FileError(page, "it would lie in the folder of the monitor; choose another place")
    if page.is_dir():
        raise FileError(page, "a folder; pass the name of a file")
    check_folder(page.parent)


def made(
    folder: Path,
    reference: Path | None,
    kind: Kind | None,
    alpha: float | None,
    tolerance: float | None,
    least_accuracy: float | None,
    bins: int | None,
) -> Monitor:
    """A new monitor; the reference is read before anything is written."""
    said = None if reference is None else read_batch(reference, kind)
    if said is not None and said.labels is None:
        assert reference is not None
        raise FileError(reference, "no labels; a reference needs them")
    return Monitor.create(
        folder,
        **({} if said is None else {said.kind: said.scores, "labels": said.labels}),
        alpha=Settings.alpha if alpha is None else alpha,
        tolerance=Settings.tolerance if tolerance is None else tolerance,
        least_accuracy=least_accuracy,
        bins=Settings.bins if bins is None else bins,
    )


class Changes:
    """What the command adds to a monitor: all of it, or none."""

    def __init__(
        self,
        add: Path | None,
        labels: Path | None,
        merge: Path | None,
        time: str | None,
        name: str,
        kind: Kind | None,
    ) -> None:
        self.batch: FromFile | None = None if add is None else read_batch(add, kind)
        self.labels = labels
        self.other = None if merge is None else Monitor.open(merge)
        self.time = time
        self.name = name

    def rehearse(self, watch: Monitor) -> None:
        """The same on a copy: what is wrong with the last change is said before the first."""
        if sum(one is not None for one in (self.batch, self.labels, self.other)) < 2:
            return
        copy = Monitor(watch.settings)
        for event in watch.events.values():
            copy.take(event)
        self.make(copy)

    def make(self, watch: Monitor) -> None:
        if self.other is not None:
            watch.merge(self.other)
        if self.batch is not None:
            said = self.batch
            logits = said.scores if said.kind == "logits" else None
            probs = said.scores if said.kind == "probs" else None
            watch.add(
                probs,
                said.labels,
                logits=logits,
                ids=said.ids,
                time=self.time,
                name=self.name,
                names=said.names,
            )
        if self.labels is not None:
            ids, labels = read_late(self.labels, watch.replay.names)
            watch.label(ids, labels, time=self.time, name=self.name)


def show_standing(found: Standing) -> None:
    tell(found.heading())
    if found.known is not None or found.expected is not None:
        tell(number_table(found), "")
    for alarm, words in zip(found.alarms, found.words(), strict=True):
        tell(Text(words, style="bold" if alarm.fired_at else ""))
    caution = found.caution()
    if caution:
        tell(caution)


def number_table(found: Standing) -> Table:
    result = Table("", "value", "95 % interval", "calibrated model", box=None)
    for row in number_rows(found):
        cells: list[Any] = [row["interval"], row["null"]]
        result.add_row(row["label"], Text(row["value"], style="bold"), *cells)
    return right_aligned(result)
