"""Inputs that are found by following the branches which a reader takes: atheris, where it is
installed.

    explored(seed, count, place)                     the outcomes, from one process per reader
    python -m faults.guided READER COUNT SEED PLACE  that process

Pure Python readers gain most; libFuzzer starts from the sound specimen.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from faults.tally import Outcome

READERS = (
    "CIFAR-10 pickle",
    "predictions .csv",
    "predictions .npy",
    "predictions .npz",
    "config.json",
    "head.safetensors",
)
SECONDS = 20  # that one input may take
GIGABYTES = 3


def explored(seed: int, count: int, place: Path) -> Iterator[Outcome]:
    """Nothing where atheris is not installed."""
    if find_spec("atheris") is None or not count:
        return
    for name in READERS:
        words = [name, str(max(1, count // len(READERS))), str(seed), str(place)]
        ended = subprocess.run(
            [sys.executable, "-m", "faults.guided", *words], capture_output=True, check=False
        )
        record = (
            json.loads((place / f"{name}.guided").read_text())
            if (place / f"{name}.guided").is_file()
            else {}
        )
        for word, number in record.get("counts", {}).items():
            yield from (Outcome(f"{name}, guided", word) for _ in range(number))
        yield from (
            Outcome(f"{name}, guided", "crash", about) for about in record.get("crashes", [])
        )
        if ended.returncode:
            last = ended.stderr.decode(errors="replace").strip().splitlines()[-1:]
            yield Outcome(
                f"{name}, guided", "crash", f"seed {seed}: exit code {ended.returncode}, {last}"
            )


def main(name: str, count: str, seed: str, place: str) -> None:
    import atheris  # type: ignore[import-untyped]

    with atheris.instrument_imports(include=["maccal"]):
        from faults import damage, fuzz
        from faults.specimens import FORMATS
    form = next(form for form in FORMATS if form.name == name)
    folder, file = fuzz.placed(form, Path(place) / "pristine", Path(place) / "guided")
    corpus = Path(place) / "corpus" / name.replace(" ", "_")
    corpus.mkdir(parents=True)
    (corpus / "sound").write_bytes(file.read_bytes())
    right = form.read(folder)
    counts: Counter[str] = Counter()
    crashes: list[str] = []
    record = Path(place) / f"{name}.guided"

    def one(data: bytes) -> None:
        file.write_bytes(data)
        word, why = damage.judged(lambda: form.read(folder), right, promised=False)
        if word == "crash":
            crashes.append(f"{why}; the input begins with {data[:60].hex()}")
        else:
            counts["refused" if word == "noticed" else "answered"] += 1
        if word == "crash" or sum(counts.values()) % 100 == 0 or sum(counts.values()) >= int(count):
            record.write_text(json.dumps({"counts": counts, "crashes": crashes}))

    limits = [
        f"-runs={count}",
        f"-seed={seed}",
        f"-timeout={SECONDS}",
        f"-rss_limit_mb={GIGABYTES * 1024}",
        "-max_len=65536",
    ]
    options: Any = ["maccal", *limits, f"-artifact_prefix={corpus.parent}/", str(corpus)]
    atheris.Setup(options, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
