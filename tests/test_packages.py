"""The wheel and the sdist: built, installed into an empty environment each, and used there.

An environment is empty but for the packages that maccal depends on, which it borrows from the
environment of the tests: torch is not downloaded again. About half a minute of one core.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
BUILT = {".so", ".pyd"}  # made by the compiler, not by us
SOURCES = {".c", ".h"}  # in the sdist alone
# what serves the repository itself, and what setuptools adds
NOT_PACKED = {".ci/run", ".gitignore"}
ADDED = {"PKG-INFO", "setup.cfg", "maccal.egg-info/SOURCES.txt"}

pytestmark = pytest.mark.slow


def run(*command, cwd, **more):
    """What it prints; its standard error if it fails."""
    outside = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=outside | more,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def repository():
    """Names of the files that belong to the project.

    As git knows them; in an unpacked sdist, which has no git, as its own list has them.
    """
    listing = ROOT / "maccal.egg-info" / "SOURCES.txt"
    if (ROOT / ".git").exists():
        command = ["ls-files", "--cached", "--others", "--exclude-standard"]
        names = run("git", *command, cwd=ROOT).splitlines()
    else:
        names = listing.read_text().splitlines()
    kept = {name for name in names if (ROOT / name).is_file()}
    return kept - ADDED


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the project, without anything that was compiled."""
    folder = tmp_path_factory.mktemp("project")
    for name in repository():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


def built(project, hook):
    """The file that setuptools makes: `hook` is build_wheel or build_sdist."""
    out = project / "dist"
    out.mkdir(exist_ok=True)
    script = f"from setuptools.build_meta import {hook}; {hook}({str(out)!r})"
    before = set(out.iterdir())
    run(sys.executable, "-c", script, cwd=project)
    (made,) = set(out.iterdir()) - before
    return made


@pytest.fixture(scope="module")
def sdist(project):
    return built(project, "build_sdist")


@pytest.fixture(scope="module")
def wheel(project):
    return built(project, "build_wheel")


def files_of(folder):
    """Files of the package as it lies in a folder."""
    return {path.relative_to(folder).as_posix() for path in (folder / "maccal").rglob("*.*")}


def of_suffix(names, suffixes):
    return {name for name in names if Path(name).suffix in suffixes}


def test_the_wheel_has_every_file_and_the_compiled_loops(project, wheel):
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if name.startswith("maccal/")}
    here = files_of(project)
    assert {"maccal/py.typed", "maccal/bench/paper.json"} <= inside
    assert any(name.startswith("maccal/report/templates/") for name in inside)
    assert inside - of_suffix(inside, BUILT) == here - of_suffix(here, SOURCES)
    (kernels,) = of_suffix(inside, BUILT)
    assert kernels.startswith("maccal/metrics/_kernels")


def test_the_wheel_serves_every_later_python(wheel):
    """Compiled against the limited API: one wheel, one module, for 3.10 and what follows."""
    assert "-cp310-abi3-" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        (kernels,) = of_suffix(archive.namelist(), BUILT)
    assert kernels == "maccal/metrics/_kernels.abi3.so"


def test_the_sdist_has_the_project_and_nothing_else(sdist):
    with tarfile.open(sdist) as archive:
        files = [member.name for member in archive.getmembers() if member.isfile()]
    names = {name.partition("/")[2] for name in files}
    assert names == (repository() - NOT_PACKED) | ADDED


def test_links_of_the_package_page_lead_out(sdist):
    """A page of a package index has no folder docs/ beside it."""
    with tarfile.open(sdist) as archive:
        (name,) = [name for name in archive.getnames() if name.count("/") == 1 and "PKG" in name]
        page = archive.extractfile(name).read().decode()
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)\s]+)\)", page)
    assert len(links) > 10
    assert all(target.startswith(("https://", "#")) for _, target in links)
    pictures = [target for mark, target in links if mark]
    assert pictures == ["https://github.com/maccal/maccal/raw/main/docs/reliability.png"]


TWINS = """
import importlib.util, sys
from setuptools import Distribution
from setuptools.command.build_ext import build_ext
import setup

limited = sys.argv[1] == "limited"
extension = setup.KERNELS
assert extension.py_limited_api and extension.define_macros
if not limited:
    extension.py_limited_api = False
    extension.define_macros = []
extension.optional = False
command = build_ext(Distribution({"ext_modules": [extension]}))
command.build_temp, command.build_lib = sys.argv[2], sys.argv[2]
command.ensure_finalized()
command.run()

import numpy as np
name, file = "_kernels", command.get_ext_fullpath(extension.name)
spec = importlib.util.spec_from_file_location(name, file)
kernels = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kernels)
rng = np.random.default_rng(0)
for kind in (np.float32, np.float64):
    logits = rng.normal(size=(500, 37)).astype(kind) * 3
    labels = rng.integers(37, size=500)
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    outputs = [np.zeros(500, kind), np.zeros(500, bool), np.zeros(500, kind), np.zeros(500, kind)]
    wide = kind is np.float64
    address = [array.ctypes.data for array in (probs, labels, *outputs)]
    kernels.scan(wide, *address[:2], 500, 37, *address[2:])
    most = logits.max(1)
    sums = [np.zeros(500), np.zeros(500)]
    address = [array.ctypes.data for array in (logits, most, labels, *sums)]
    kernels.scores(wide, *address[:3], 500, 37, 0.7, *address[3:])
    for array in (*outputs, *sums):
        print(array.tobytes().hex())
"""


def test_the_limited_api_changes_no_bit(project, tmp_path):
    """The kernels with and without it, on the same rows."""
    printed = []
    for kind in ("limited", "whole"):
        folder = tmp_path / kind
        words = ["-c", TWINS, kind, folder]
        printed.append(run(sys.executable, *words, cwd=project))
        (file,) = folder.rglob("_kernels*.so")
        assert (".abi3." in file.name) == (kind == "limited")
    lines = [[line for line in text.splitlines() if len(line) >= 1000] for text in printed]
    assert lines[0] == lines[1]
    assert len(lines[0]) == 12
    assert all(set(line) != {"0"} for line in lines[0])


SMOKE = """
import maccal, maccal.metrics._kernels, maccal.cli.main
print(maccal.__file__)
"""


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_installed_in_an_empty_environment(request, kind, tmp_path):
    """It imports from there with its compiled loops, and the command writes a row and a page."""
    package = request.getfixturevalue(kind)
    home = tmp_path / "environment"
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    (site,) = home.glob("lib/python*/site-packages")
    # a path in a .pth file is searched, but the .pth files in it, such as that of an editable
    # install of maccal, are not read
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    offline = ["--no-deps", "--no-index", "--no-build-isolation", "--no-cache-dir"]
    run(python, "-m", "pip", "install", "--quiet", *offline, package, cwd=tmp_path)
    found = Path(run(python, "-c", SMOKE, cwd=tmp_path).strip())
    assert found == site / "maccal" / "__init__.py"

    probs = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    np.savez(tmp_path / "small.npz", probs=probs, labels=np.array([0, 1, 1]))
    program = home / "bin" / "maccal"
    run(program, "evaluate", "small.npz", "--out", "out", "--resamples", "20", cwd=tmp_path)
    row = json.loads((tmp_path / "out" / "small.row.json").read_text())
    assert row["numbers"]["accuracy"] == pytest.approx(2 / 3)
    page = (tmp_path / "out" / "small.report.html").read_text()
    assert page.startswith("<!doctype html>")


def test_a_file_that_the_wheel_lacks_is_noticed(project, wheel):
    """The first test can fail: a data file that nothing names in pyproject.toml is not packed."""
    (project / "maccal" / "forgotten.json").write_text("{}")
    try:
        with pytest.raises(AssertionError, match=r"maccal/forgotten\.json"):
            test_the_wheel_has_every_file_and_the_compiled_loops(project, wheel)
    finally:
        (project / "maccal" / "forgotten.json").unlink()
