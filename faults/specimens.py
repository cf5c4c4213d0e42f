"""One small, sound specimen of every format that the package writes or reads, and how it is read.

    make(folder)    writes them all; takes a few seconds
    FORMATS         what is damaged: the file, and a function of its folder that gives what was
                    read, as text

A format is `promised` where damage must never go unnoticed: it carries a checksum, ours or its
publisher's. A .csv, a bare array, a picture have none: there, damage that leaves a readable file is
counted as not promised.
"""

import json
import pickle
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import maccal
from faults import server
from faults.commands import checked, snapshot
from faults.sandbox import forked, waited
from maccal.evaluation.row import read_rows, write_rows
from maccal.io import read_json, write_json

ROOT = Path(__file__).parents[1]
RUN = "digits.100-resnet8,epochs=1-vanilla-s1"
TRAIN = [
    "train",
    "--data",
    "digits",
    "--model",
    "resnet8",
    "--limit",
    "100",
    "--epochs",
    "1",
    "--precision",
    "fp32",
]
RECIPE = maccal.Recipe(epochs=3, batch_size=8, lr=0.01, padding=0, flip=False, precision="fp32")


@dataclass(frozen=True)
class Format:
    """A file among its specimens, and its reader."""

    name: str
    folder: str
    file: str  # a pattern; the first file that fits
    read: Callable[[Path], object]
    promised: bool = True
    share: float = 1.0  # of the trials: less where reading is slow
    published: bool = False  # with a publisher's checksum, which is for files of the published size


def text(*values: Any) -> str:
    """What was read, as a digest: equal only for the same bits."""
    total = blake2b(digest_size=16)
    for value in values:
        if isinstance(value, torch.Tensor):
            value = value.detach().contiguous().numpy()
        if isinstance(value, np.ndarray):
            total.update(f"{value.dtype} {value.shape} ".encode())
            value = value.tobytes() if value.dtype != object else repr(value.tolist()).encode()
        total.update(value if isinstance(value, bytes) else repr(value).encode())
    return total.hexdigest()


# Runs: made by the command line


def make_run(folder: Path) -> None:
    checked([*TRAIN, "--runs", "."], folder)
    for path in (folder / RUN).iterdir():
        shutil.move(path, folder / path.name)
    (folder / RUN).rmdir()


def evaluate(folder: Path) -> object:
    """The row that `maccal evaluate` makes of a run.

    It reads config, history, predictions and the row before.
    """
    checked(["evaluate", ".", "--resamples", "2"], folder)
    return snapshot(folder)["row.json"]


def calibrate(folder: Path) -> object:
    """Stage II of a run; the seconds of the extraction count by the thousand."""
    checked(["calibrate", folder.name, "--epochs", "1"], folder.parent)
    made = next(path for path in folder.parent.iterdir() if path != folder)
    row = json.loads((made / "row.json").read_text())
    shutil.rmtree(made)
    return row["numbers"]["ece"], round(row["trained"]["seconds"], -3)


def network(folder: Path) -> object:
    """The network of a run."""
    from maccal.runs import load_run

    return text(*load_run(folder, 10).state_dict().values())


def config(folder: Path) -> object:
    from maccal.runs import read_config

    return repr(read_config(folder))


def report(folder: Path) -> object:
    """The page that `maccal report` makes of rows."""
    checked(["report", "rows.jsonl", "--out", "page.html"], folder)
    return text((folder / "page.html").read_bytes())


# A training in the middle


def split() -> Any:
    from maccal.data import Split

    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (24, 1, 4, 4), generator=generator, dtype=torch.uint8)
    return Split(images, torch.arange(24) % 3)


def trained(checkpoint: Path, log: Callable[[Any], None] | None = None) -> object:
    """Train a tiny network, from the checkpoint if there is one."""
    torch.manual_seed(0)
    made = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))
    how: Any = {"pixels": lambda images: images.float() / 255, "checkpoint": checkpoint, "log": log}
    history = maccal.fit(made, split(), RECIPE, **how)
    for epoch in history:
        epoch.pop("seconds")
    return text(repr(history), *made.state_dict().values())


class Stop(Exception):
    pass


def make_checkpoint(folder: Path) -> None:
    def stop(history: Any) -> None:
        if len(history) == 2:
            raise Stop

    try:
        trained(folder / "checkpoint.pt", stop)
    except Stop:
        return
    raise RuntimeError("the training did not stop")


# Heads and features


def body() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).eval()


def loader() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(2)
    y = torch.randint(3, (40,), generator=generator)
    x = torch.randn(40, 6, generator=generator) + y[:, None]
    return list(zip(torch.split(x, 16), torch.split(y, 16), strict=True))


def make_features(folder: Path) -> None:
    maccal.extract(body(), loader(), cache=folder / "cache")


def features(folder: Path) -> object:
    return text(*maccal.extract(body(), loader(), cache=folder / "cache"))


def make_head(folder: Path) -> None:
    maccal.save_head(
        nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)),
        folder / "mine.head.safetensors",
        seed="1",
    )


def head(folder: Path) -> object:
    layers = maccal.load_head(folder / "mine.head.safetensors")
    return text(repr(layers), *layers.state_dict().values())


def make_monitor(folder: Path) -> None:
    """A state of two batches, with labels and without, and labels that came late."""
    rng = np.random.default_rng(3)
    p = rng.uniform(0.6, 1, 90)
    probs = np.stack([p, 1 - p], 1)
    labels = (rng.random(90) > p).astype(int)
    watch = maccal.Monitor.create(folder / "state", probs=probs[:30], labels=labels[:30])
    watch.add(probs[30:60], labels[30:60], time="2026-03-01")
    watch.add(probs[60:], ids=range(60, 90), time="2026-03-02")
    watch.label(range(60, 80), labels[60:80], time="2026-03-03")


def monitor(folder: Path) -> object:
    return repr(maccal.Monitor.open(folder / "state").standing().values())


def make_feature_file(folder: Path) -> None:
    rng = np.random.default_rng(0)
    parts: dict[str, Any] = {}
    for name in ("", "val_", "test_"):
        y = rng.integers(0, 3, 60)
        parts[f"{name}z"], parts[f"{name}y"] = (
            (rng.normal(size=(60, 6)) + y[:, None]).astype(np.float32),
            y,
        )
    np.savez(folder / "mine.npz", **parts)


def feature_file(folder: Path) -> object:
    checked(["calibrate", "mine.npz", "--epochs", "1", "--out", "out"], folder)
    found = snapshot(folder / "out")
    return found["mine.head.safetensors"], found["mine.history.json"]


# Predictions


def arrays() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    return rng.dirichlet([1.0, 1.0, 1.0], 30), rng.integers(0, 3, 30)


def make_predictions(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    probs, labels = arrays()
    np.savez(folder / "mine.npz", probs=probs, labels=labels)
    np.savez_compressed(folder / "packed.npz", probs=probs, labels=labels)
    np.save(folder / "mine.npy", probs)
    np.save(folder / "labels.npy", labels)
    lines = [",".join(map(str, [label, *row])) for label, row in zip(labels, probs, strict=True)]
    (folder / "mine.csv").write_text("\n".join(["label,prob_0,prob_1,prob_2", *lines]) + "\n")
    columns: dict[str, Any] = {f"prob_{k}": probs[:, k] for k in range(3)}
    pyarrow.parquet.write_table(pa.table({"label": labels, **columns}), folder / "mine.parquet")


def predictions(name: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        bare: Any = (
            {"labels": folder / "labels.npy", "kind": "probs"} if name.endswith(".npy") else {}
        )
        found = maccal.read(folder / name, **bare)
        return text(found.kind, found.classes, np.asarray(found.scores), np.asarray(found.labels))

    return read


# Data sets, a few images each


def make_cifar(folder: Path) -> None:
    rng = np.random.default_rng(4)
    ten, hundred = folder / "cifar-10-batches-py", folder / "cifar-100-python"
    for target, names, key, classes in (
        (ten, [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"], b"labels", 10),
        (hundred, ["train", "test"], b"fine_labels", 100),
    ):
        target.mkdir()
        for name in names:
            labels = rng.integers(0, classes, 4).tolist()
            content = {b"data": rng.integers(0, 256, (4, 3072), np.uint8), key: labels}
            (target / name).write_bytes(pickle.dumps(content, 2))
        meta, field = (
            ("batches.meta", b"label_names") if classes == 10 else ("meta", b"fine_label_names")
        )
        (target / meta).write_bytes(
            pickle.dumps({field: [f"c{i}".encode() for i in range(classes)]}, 2)
        )


def make_svhn(folder: Path) -> None:
    from scipy.io import savemat

    rng = np.random.default_rng(5)
    images = rng.integers(0, 256, (32, 32, 3, 6), np.uint8)
    (folder / "svhn").mkdir()
    savemat(
        folder / "svhn" / "test_32x32.mat",
        {"X": images, "y": rng.integers(1, 11, (6, 1)).astype(np.uint8)},
        do_compression=True,
    )


def make_tiny(folder: Path) -> None:
    from PIL import Image

    rng = np.random.default_rng(6)
    top = folder / "tiny-imagenet-200"
    (top / "val" / "images").mkdir(parents=True)
    listed = []
    for number, name in enumerate(("n01", "n02")):
        (top / "train" / name / "images").mkdir(parents=True)
        for image in range(52):
            picture = Image.fromarray(rng.integers(0, 256, (64, 64, 3), np.uint8))
            picture.save(top / "train" / name / "images" / f"{name}_{image}.JPEG", quality=20)
        picture.save(top / "val" / "images" / f"val_{number}.JPEG", quality=20)
        listed.append(f"val_{number}.JPEG\t{name}\t0\t0\t63\t63")
    (top / "wnids.txt").write_text("n01\nn02\n")
    (top / "words.txt").write_text("n01\tcat, a cat\nn02\tdog, a dog\n")
    (top / "val" / "val_annotations.txt").write_text("\n".join(listed) + "\n")


def make_cifar_c(folder: Path) -> None:
    rng = np.random.default_rng(7)
    top = folder / "CIFAR-10-C"
    top.mkdir()
    np.save(top / "labels.npy", np.tile(rng.integers(0, 10, 2), 5).astype(np.uint8))
    np.save(top / "fog.npy", rng.integers(0, 256, (10, 32, 32, 3), np.uint8))


def data_set(name: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        data = maccal.load(name, folder)
        parts = [part for part in (data.train, data.val, data.test) if part is not None]
        return text(
            data.classes, *(tensor for part in parts for tensor in (part.images, part.labels))
        )

    return read


def published(name: str) -> Callable[[Path], object]:
    """The same where the publisher's checksums are those of the specimens."""

    def read(folder: Path) -> object:
        with server.known(folder):
            return data_set(name)(folder)

    return read


# All of them


def make_rows(folder: Path) -> None:
    write_rows(folder / "rows.jsonl", read_rows(ROOT / "results" / "bench-cpu.jsonl")[:4])


def edit(path: Path, **values: Any) -> None:
    """Put values into a sealed JSON file, and seal it again."""
    kind = json.loads(path.read_text())["format"].removeprefix("maccal ")
    write_json(path, kind, {**read_json(path, kind), **values})


def make_evaluated(folder: Path) -> None:
    """A run whose row has a part that was measured later."""
    shutil.copytree(folder.parent / "run", folder, dirs_exist_ok=True)
    edit(folder / "row.json", ood={"mean": {"auroc": 0.75, "fpr95": 0.5}})


def make_extracted(folder: Path) -> None:
    """A run that was calibrated once, and took long."""
    shutil.copytree(folder.parent / "run", folder, dirs_exist_ok=True)
    checked(["calibrate", folder.name, "--epochs", "1"], folder.parent)
    for path in folder.parent.glob("digits*"):
        shutil.rmtree(path)
    edit(folder / "extraction.json", seconds=123456789.0)


# In this order: later ones use earlier ones
MAKERS: dict[str, Callable[[Path], None]] = {
    "run": make_run,
    "evaluated": make_evaluated,
    "extracted": make_extracted,
    "rows": make_rows,
    "training": make_checkpoint,
    "features": make_features,
    "head": make_head,
    "monitor": make_monitor,
    "feature file": make_feature_file,
    "predictions": make_predictions,
    "cifar": make_cifar,
    "svhn": make_svhn,
    "tiny": make_tiny,
    "cifar-c": make_cifar_c,
}

FORMATS = (
    Format(
        "checkpoint.pt",
        "training",
        "checkpoint.pt",
        lambda folder: trained(folder / "checkpoint.pt"),
    ),
    Format("model.safetensors", "run", "model.safetensors", network),
    Format("head.safetensors", "head", "mine.head.safetensors", head),
    Format("config.json", "run", "config.json", config),
    Format("row.json", "evaluated", "row.json", evaluate, share=0.5),
    Format("history.jsonl", "evaluated", "history.jsonl", evaluate, share=0.5),
    Format("test.npz", "evaluated", "test.npz", evaluate, share=0.5),
    Format("extraction.json", "extracted", "extraction.json", calibrate, share=0.25),
    Format("features of a cache", "features", "cache/*", features),
    Format("rows.jsonl", "rows", "rows.jsonl", report, share=0.25),
    Format("monitor event", "monitor", "state/events/*", monitor),
    Format("monitor settings.json", "monitor", "state/settings.json", monitor, share=0.5),
    Format("features.npz", "feature file", "mine.npz", feature_file, share=0.5),
    Format("predictions .npz", "predictions", "mine.npz", predictions("mine.npz")),
    Format("predictions .npz, compressed", "predictions", "packed.npz", predictions("packed.npz")),
    Format("predictions .npy", "predictions", "mine.npy", predictions("mine.npy"), promised=False),
    Format("labels .npy", "predictions", "labels.npy", predictions("mine.npy"), promised=False),
    Format("predictions .csv", "predictions", "mine.csv", predictions("mine.csv"), promised=False),
    Format(
        "predictions .parquet",
        "predictions",
        "mine.parquet",
        predictions("mine.parquet"),
        promised=False,
    ),
    Format(
        "CIFAR-10 pickle",
        "cifar",
        "cifar-10-batches-py/data_batch_2",
        data_set("cifar10"),
        promised=False,
    ),
    Format(
        "CIFAR-100 pickle", "cifar", "cifar-100-python/train", data_set("cifar100"), promised=False
    ),
    Format(
        "CIFAR names",
        "cifar",
        "cifar-10-batches-py/batches.meta",
        data_set("cifar10"),
        promised=False,
    ),
    Format(
        "CIFAR-10 pickle, published",
        "cifar",
        "cifar-10-batches-py/data_batch_2",
        published("cifar10"),
        published=True,
    ),
    Format(
        "SVHN .mat, published", "svhn", "svhn/test_32x32.mat", published("svhn"), published=True
    ),
    Format(
        "CIFAR-C images, published",
        "cifar-c",
        "CIFAR-10-C/fog.npy",
        published("cifar10-c"),
        published=True,
    ),
    Format("SVHN .mat", "svhn", "svhn/test_32x32.mat", data_set("svhn"), promised=False),
    Format(
        "Tiny ImageNet JPEG",
        "tiny",
        "*/train/n01/images/n01_1.JPEG",
        data_set("tiny-imagenet"),
        promised=False,
    ),
    Format(
        "Tiny ImageNet lists",
        "tiny",
        "*/val/val_annotations.txt",
        data_set("tiny-imagenet"),
        promised=False,
        share=0.5,
    ),
    Format(
        "CIFAR-C images", "cifar-c", "CIFAR-10-C/fog.npy", data_set("cifar10-c"), promised=False
    ),
    Format(
        "CIFAR-C labels", "cifar-c", "CIFAR-10-C/labels.npy", data_set("cifar10-c"), promised=False
    ),
)


def make(folder: Path, formats: tuple[Format, ...] = FORMATS) -> None:
    """The specimens of these formats below the folder, each made in a process of its own."""
    needed = {"run", *(form.folder for form in formats)}
    for name, maker in MAKERS.items():
        if name in needed:
            target = folder / name
            target.mkdir(parents=True)
            make_one(maker, target)


def make_one(maker: Callable[[Path], None], target: Path) -> None:
    if waited(forked(lambda: maker(target), quiet=False), 300) != 0:
        raise RuntimeError(f"the specimen {target.name!r} could not be made")
    if target.name in ("cifar", "svhn", "cifar-c"):
        server.recorded(target)
