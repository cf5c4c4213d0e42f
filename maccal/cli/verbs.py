"""The verbs of the command line, by name: where each is, what it does, and how it is used.

A new verb is one file in this room with a function, and one row here. The function's parameters are
its flags, its docstring says what each is (parsing.py); the flags that every verb has are added to
them. `maccal --help`, completion and "did you mean" follow from the row, and the tests run every
example's flags. A name of two words, such as "data list", is a verb within a group.
"""

from typing import NamedTuple


class Example(NamedTuple):
    """A command as one types it, without the program's name, and what it does."""

    words: str
    about: str


class Verb(NamedTuple):
    """A row: its function as module:name, a line for the list, and two or three examples."""

    home: str
    about: str
    examples: tuple[Example, ...]
    # whether the function named above makes the verb, given the words of the command line
    made: bool = False


RUN = "runs/cifar10-resnet50-mixup-s1"

VERBS: dict[str, Verb] = {
    "demo": Verb(
        "maccal.cli.demo:demo",
        "train, calibrate, compare and report a small network: half a minute, no download",
        (
            Example("demo", "everything into build/demo; open build/demo/demo.report.html"),
            Example("demo --out /tmp/demo --seed 2", "elsewhere, with other images and weights"),
        ),
    ),
    "evaluate": Verb(
        "maccal.cli.evaluate:evaluate",
        "measure the confidence of predictions, and write a page about it",
        (
            Example("evaluate predictions.npz", "logits or probs, and labels"),
            Example("evaluate a.csv --compare b.csv c.csv", "three models on the same rows"),
            Example(
                "evaluate - --format jsonl --json --quiet < said.jsonl", "in a pipe, JSON comes out"
            ),
        ),
    ),
    "compare": Verb(
        "maccal.cli.compare:compare",
        "say which post-hoc calibrator suits held-out predictions best",
        (
            Example("compare predictions.npz", "all of them, a table and the advice"),
            Example(
                'compare predictions.csv.gz --calibrators temperature "structured matrix"',
                "these two, by cross-fitting",
            ),
            Example("compare predictions.npz --json --out made", "as JSON, and to a file"),
        ),
    ),
    "trust": Verb(
        "maccal.cli.trust:trust",
        "sets that hold the label, answers with a bounded risk, calibration by class and group",
        (
            Example("trust predictions.npz", "coverage 90 %, at most 1 % of the answers wrong"),
            Example(
                "trust predictions.npz --coverage 0.95 --risk 0.02 --groups groups.npy",
                "other promises, and calibration by group",
            ),
            Example("trust predictions.npz --json --out made", "as JSON, and a page"),
        ),
    ),
    "monitor": Verb(
        "maccal.cli.monitor:monitor",
        "watch a deployed model: batches, late labels, alarms; exit code 3 when one has fired",
        (
            Example("monitor state --new --reference held-out.npz", "begin"),
            Example("monitor state --add batch.npz --page monitor.html", "every day"),
            Example("monitor state --labels late.csv", "labels that came later"),
        ),
    ),
    "calibrate": Verb(
        "maccal.cli.calibrate:calibrate_of",
        "give a classifier a confidence that can be trusted: a model, features, or a run",
        (
            Example("calibrate mine.py:build", "a function that returns model, train[, val, test]"),
            Example("calibrate features.npz --accuracy 0.93", "features z, y; no held-out labels"),
            Example(f"calibrate {RUN}", "a run of maccal train"),
        ),
        made=True,
    ),
    "train": Verb(
        "maccal.cli.train:train_of",
        "train a network by one of sixteen methods",
        (
            Example(
                "train --data digits --model resnet8 --method mixup --epochs 3",
                "no download, a minute",
            ),
            Example(
                "train --data cifar10 --model resnet50 --method acls+maccal --seed 2",
                "the paper's protocol: needs a GPU",
            ),
        ),
        made=True,
    ),
    "bench": Verb(
        "maccal.cli.bench:bench",
        "make the paper's tables and figures as grids of runs",
        (
            Example("bench table1 --scale cpu --plan", "what there is, and what is left to do"),
            Example(
                "bench table1 --scale cpu --seeds 1 2 --workers 2", "make it; goes on anywhere"
            ),
            Example("bench all --executor ray --address auto --gpus 1", "all of it on a cluster"),
        ),
    ),
    "report": Verb(
        "maccal.cli.report:report",
        "write the page of the benchmark from its rows",
        (
            Example("report results/bench-cpu.jsonl", "to report.html"),
            Example("report runs/ --out mine.html --figures figures", "of your own runs"),
        ),
    ),
    "data list": Verb(
        "maccal.cli.data:list_sets",
        "list the data sets, and which are here",
        (
            Example("data list", "where they come from, and how large they are"),
            Example("data list --root /data --json", "as JSON"),
        ),
    ),
    "data get": Verb(
        "maccal.cli.data:get_set",
        "download a data set, verify it and unpack it",
        (
            Example("data get cifar10", "170 MB from its publisher"),
            Example("data get svhn --root /data --keep", "elsewhere, and keep the archives"),
        ),
    ),
    "data check": Verb(
        "maccal.cli.data:check_sets",
        "check that data sets are complete",
        (
            Example("data check", "all that are here"),
            Example("data check cifar10 svhn", "these two"),
        ),
    ),
}
GROUPS = {"data": "list, download and check data sets"}
