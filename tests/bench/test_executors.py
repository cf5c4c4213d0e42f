"""Runs made by processes here and by a real Ray cluster, with failures, a killed worker, and a grid
stopped and gone on with.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from maccal.bench.executors import Local, Ray, failed, next_of, work
from maccal.bench.grids import collect, jobs, read_error
from maccal.cli.main import main
from maccal.evaluation.row import Row, read_rows, write_row

WANTED = [job for job in jobs("cost", "cpu", (1,)) if job.config.data == "cifar10"]
NAMES = [job.config.name for job in WANTED]


def make(job, runs, trouble="", once=""):
    """Stands in for a training: writes a row, a while later.

    Or fails, or is killed, by name, for ever or once.
    """
    assert all(
        (runs / job.first.name / "row.json").is_file()
        for _ in [0]
        if job.first.name != job.config.name
    )
    folder = runs / job.config.name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "tries").open("a") as tries:
        tries.write("x")
    if job.config.method == trouble:
        raise RuntimeError("out of luck")
    if job.config.method == once and (folder / "tries").read_text() == "x":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.05)
    write_row(
        folder / "row.json",
        Row(
            job.config.name,
            ran=job.config.ran,
            trained={"seconds": 1.0},
            numbers={"ece": 0.5},
        ),
    )


def done(runs):
    return sorted(name for name in NAMES if (runs / name / "row.json").is_file())


def errors(outcomes):
    return {job.config.method: error for job, error in outcomes if error}


def test_second_stages_of_one_network_wait_for_those_of_another():
    """In the order of the grid, but beside a running one preferably on another network."""
    found = {(job.config.data, job.config.method): job for job in jobs("cost", "cpu", (1,))}
    first, second = found["cifar10", "tst"], found["cifar10", "vtst"]
    other, own = found["cifar100", "tst"], found["cifar10", "vanilla"]
    assert next_of([first, second, other], []) is first
    assert next_of([second, other], [first]) is other
    assert next_of([second], [first]) is second
    assert next_of([second], [own]) is None  # its stage I is being made
    assert next_of([own, second], [other]) is own


@pytest.mark.slow
def test_local_processes(tmp_path):
    outcomes = list(work(WANTED, partial(make, runs=tmp_path), tmp_path, Local(2)))
    assert errors(outcomes) == {}
    assert done(tmp_path) == sorted(NAMES)
    # nothing is left to do
    assert list(work(WANTED, partial(make, runs=tmp_path), tmp_path, Local(2))) == []


@pytest.mark.slow
def test_a_failure_does_not_stop_the_rest(tmp_path):
    outcomes = list(
        work(WANTED, partial(make, runs=tmp_path, trouble="mit", once="balcal"), tmp_path, Local(2))
    )
    assert errors(outcomes) == {"mit": "RuntimeError: out of luck", "balcal": "killed by signal 9"}
    assert len(done(tmp_path)) == len(NAMES) - 2
    broken = next(job for job in WANTED if job.config.method == "mit")
    assert broken.state(tmp_path) == "failed"
    assert (
        "out of luck"
        in json.loads((tmp_path / broken.config.name / "error.json").read_text())["traceback"]
    )
    again = list(work(WANTED, partial(make, runs=tmp_path), tmp_path, Local(1)))
    assert {job.config.method for job, _ in again} == {"mit", "balcal"}
    assert done(tmp_path) == sorted(NAMES)


@pytest.mark.slow
def test_an_error_that_cannot_be_written_or_read_stops_nothing(tmp_path):
    """A folder stands in its place, which cannot be replaced.

    The grid goes on, and the row says so.
    """
    failing = next(job for job in WANTED if job.config.method == "mit")
    file = tmp_path / failing.config.name / "error.json"
    (file / "inside").mkdir(parents=True)
    outcomes = errors(work([failing], partial(make, runs=tmp_path), tmp_path, Local(2)))
    assert "its error.json cannot be read" in outcomes["mit"]
    shutil.rmtree(file)
    failed(file, "RuntimeError: out of luck")
    assert read_error(file) == "RuntimeError: out of luck"
    file.write_bytes(file.read_bytes().replace(b"luck", b"lack"))
    (row,) = [row for row in collect(WANTED, tmp_path) if row.error is not None]
    assert "its checksum is wrong" in row.error


@pytest.mark.slow
def test_what_builds_on_a_failure_is_not_tried(tmp_path):
    outcomes = errors(
        work(WANTED, partial(make, runs=tmp_path, trouble="vanilla"), tmp_path, Local(2))
    )
    assert set(outcomes) == {"vanilla", "tst", "vtst", "maccal"}
    (first,) = {job.first.name for job in WANTED if job.config.method == "tst"}
    assert outcomes["tst"] == f"its stage I, {first}, failed"


@pytest.mark.slow
def test_stopped_and_gone_on_with(tmp_path):
    whole = work(WANTED, partial(make, runs=tmp_path / "a"), tmp_path / "a", Local(2))
    next(whole)
    whole.close()  # as Ctrl-C does
    assert 0 < len(done(tmp_path / "a")) < len(NAMES)
    list(work(WANTED, partial(make, runs=tmp_path / "a"), tmp_path / "a", Local(2)))
    assert done(tmp_path / "a") == sorted(NAMES)


GRID = """
import sys
from pathlib import Path
from maccal.bench import grids
from maccal.bench.scales import Scale
from maccal.cli import bench as bench_verb
from maccal.training.recipe import Recipe
recipe = Recipe(epochs=2, padding=0, flip=False, precision="fp32")
small = {"digits": ("resnet8",)}
scale = Scale(small, {"digits": 100}, {"digits": recipe}, readings=False)
tiny = {"tiny": scale}
grids.SCALES = bench_verb.SCALES = tiny
folder = Path(sys.argv[1])
bench_verb.bench(("cost",), "tiny", (1,), workers=2, runs=folder / "runs", results=folder)
"""


def rows_without_times(folder):
    rows = []
    for row in read_rows(folder / "bench-tiny.jsonl"):
        trained = {key: value for key, value in row.trained.items() if key != "seconds"}
        rows.append(replace(row, trained=trained))
    return rows


@pytest.mark.slow
def test_a_grid_killed_and_resumed_gives_the_same_rows(tmp_path):
    """Real trainings.

    The grid is killed while some are done and others in the middle, and its processes die with it.
    """
    command = [sys.executable, "-c", GRID]
    killed = subprocess.Popen(
        [*command, str(tmp_path / "killed")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "vanilla" in killed.stderr.readline() + killed.stderr.readline()
    killed.kill()
    killed.communicate()  # its output ends when the last of its processes has
    half = len(rows_without_times(tmp_path / "killed"))
    assert 0 < half < 6
    for folder in ("killed", "whole"):
        subprocess.run([*command, str(tmp_path / folder)], check=True, stdout=subprocess.DEVNULL)
    rows = rows_without_times(tmp_path / "killed")
    assert len(rows) == 6
    assert rows == rows_without_times(tmp_path / "whole")


@pytest.fixture(scope="module")
def cluster():
    """A real Ray cluster on this machine."""
    ray = pytest.importorskip("ray")
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}},
    )
    yield ray
    ray.shutdown()


@pytest.mark.distributed
@pytest.mark.filterwarnings("ignore")
def test_ray_with_a_killed_worker(cluster, tmp_path):
    """The worker that makes BalCAL dies in the middle; Ray tries it again.

    MIT fails by itself, which is recorded.
    """
    outcomes = list(
        work(WANTED, partial(make, runs=tmp_path, trouble="mit", once="balcal"), tmp_path, Ray())
    )
    assert errors(outcomes) == {"mit": "RuntimeError: out of luck"}
    balcal = next(job for job in WANTED if job.config.method == "balcal")
    assert (tmp_path / balcal.config.name / "tries").read_text() == "xx"
    assert len(done(tmp_path)) == len(NAMES) - 1
    assert cluster.is_initialized()  # a cluster that was there before stays
    broken = errors(
        work(WANTED, partial(make, runs=tmp_path / "b", trouble="vanilla"), tmp_path / "b", Ray())
    )
    assert set(broken) == {"vanilla", "tst", "vtst", "maccal"}


def test_without_ray(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"pip install 'maccal\[ray\]'"):
        list(work(WANTED, partial(make, runs=tmp_path), tmp_path, Ray()))


@pytest.mark.slow
def test_the_plan_from_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "150")
    choices = [
        "--scale",
        "cpu",
        "--seeds",
        "1",
        "--plan",
        "--results",
        "none",
        "--runs",
        str(tmp_path),
    ]
    monkeypatch.setattr(sys, "argv", ["maccal", "bench", "all", *choices])
    main()
    out = capsys.readouterr().out
    assert all(line in " ".join(out.split()) for line in ("table1 34 0 0 34", "ablation 16 0 0 16"))
    assert not list(tmp_path.iterdir())
