"""A room imports only from rooms before it on the path of the data.

Inside a room the same holds for its files.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import maccal

PACKAGE = Path(maccal.__file__).parent

# From images to the page: each room with its files in their order. A file that is not named may
# import none of its room's, and all of its room's may import it.
ROOMS = {
    "lazy": "",
    "plugins": "",
    "caution": "",
    "progress": "",
    "limits": "",
    "io": "errors folders locks files formats",
    "distributed": "",
    "metrics": "arguments inputs given binning bins miscalibration softmaxes temperature scores"
    " ranking resampling notebooks summaries counts listing groups binary multilabel sketch"
    " streaming paired",
    "trust": "scores sets conformal selective",
    "data": "split"
    " download.sources download.archives download.transfer download.verified download.sets download"
    " corruptions.blurs corruptions.weather corruptions.digital corruptions.registry"
    " corruptions.stored corruptions"
    " readers.pickles readers.matlab readers.cifar readers.cifar_c readers.svhn readers.tiny"
    " readers.digits readers",
    "models": "net resnet densenet",
    "training": "recipe precision checkpoint objective prediction steps progress loop",
    "methods": "losses.rows losses.entropy losses.margins losses.focal losses.pairs"
    " losses.mixing losses mixing plp balcal registry",
    "features": "batches fingerprints mapped cache lookup table running layers classifiers finding"
    " taps alone extraction sampling views",
    "calibration": "solving stage2 live feedback looks heads task retraining mac_cal"
    " posthoc.inputs posthoc.one_number posthoc.temperature posthoc.ensemble"
    " posthoc.nearby posthoc.curvature posthoc.logistic"
    " posthoc.vector posthoc.structured posthoc.dirichlet posthoc.one_vs_rest posthoc.beta"
    " posthoc.isotonic posthoc.histogram posthoc.spline posthoc.venn_abers posthoc.family posthoc"
    " temperature scalings tst two_stage registry model logistic estimator",
    "evaluation": "typed provenance checks older row arrays packed tables records harness parquet"
    " predictions evaluated ood shift masks pace choosing tasks trusting",
    "monitoring": "wealth cells settings alarms expected events told replay store measured standing"
    " periods monitor files",
    "deployment": "facts onnx saved cards",
    "runs": "config naming origin folder state history ending second making beyond motivation",
    "bench": "paper titles readings scales grids executors lines contrasts standing judging"
    " comparing ablations sweeps settling costs claims origins",
    "report": "look notebooks diagrams keep page figures.selection figures.drawing figures.methods"
    " figures.averages figures.board figures.shift figures.cost figures.sensitivity"
    " figures.sparsity figures.scheme figures.motivation figures.before_after figures"
    " evaluation sections course monitor cells tables board leaderboard",
    "integrations": "",
    "cli": "failures flags verbs output parsing reading features_file printing tasks jobs data"
    " bench report demo evaluate compare trust monitor calibrate train main",
}
ENDS = ("maccal", "maccal.__main__")


def place_of(module: str) -> tuple[int, int]:
    """The number of its room, and the number of its file there.

    The room's own names come last in it.
    """
    if module in ENDS:
        return len(ROOMS), ENDS.index(module)
    room, _, file = module.removeprefix("maccal.").partition(".")
    files = ["", *ROOMS[room].split()]
    inside = len(files) if not file else files.index(file) if file in files else 0
    return list(ROOMS).index(room), inside


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(
        ".__init__"
    )


SOURCES = {name_of(path): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
MODULES = {*SOURCES, "maccal.metrics._kernels"}


def imports(source: str) -> set[str]:
    """Modules of the package that a source imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "absolute imports only"
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & MODULES
            found |= inner or {node.module}
    return {name for name in found if name.split(".")[0] == "maccal"}


def backward(sources: dict[str, str]) -> list[str]:
    """Every import that does not lead to an earlier place.

    The rooms' lists of names may be imported by later rooms only.
    """
    found = []
    for name, source in sources.items():
        for other in sorted(imports(source)):
            if place_of(other) >= place_of(name):
                found.append(f"{name} imports {other}")
    return found


def test_every_file_has_its_room():
    """Nothing lies beside the rooms, and every file that is named is there."""
    rooms = {name.split(".")[1] for name in SOURCES if "." in name} - {"__main__"}
    assert rooms == set(ROOMS)
    named = {f"maccal.{room}.{file}" for room, files in ROOMS.items() for file in files.split()}
    assert named <= MODULES


def test_imports_point_back_along_the_path():
    assert backward(SOURCES) == []


def test_the_test_can_fail():
    wrong = {
        "maccal.metrics.bins": "from maccal.report.diagrams import reliability",
        "maccal.features.table": "def f():\n    import maccal.cli.main",
        "maccal.training.recipe": "from maccal.training.loop import fit",
        "maccal.metrics.inputs": "from maccal.metrics import ece",
    }
    assert backward(wrong) == [
        "maccal.metrics.bins imports maccal.report.diagrams",
        "maccal.features.table imports maccal.cli.main",
        "maccal.training.recipe imports maccal.training.loop",
        "maccal.metrics.inputs imports maccal.metrics",
    ]


def test_one_binning_function():
    """Nothing but binning.assign sorts values into bins."""
    pattern = re.compile(r"\b(digitize|bucketize|histogram)\(")
    users = {name for name, source in SOURCES.items() if pattern.search(source)}
    assert users == {"maccal.metrics.binning"}


def test_public_names_exist():
    """Of the package and of every room, in one order: constants, classes, functions."""
    packages = [maccal, *(getattr(maccal, room) for room in ROOMS)]
    for package in packages:
        names = getattr(package, "__all__", [])
        assert all(hasattr(package, name) for name in names)
        assert names == sorted(names, key=lambda name: (not name.isupper(), name.islower(), name))


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("maccal", ("torch", "numpy", "scipy")),
        ("maccal.runs.making", ("jinja2", "matplotlib", "sklearn", "scipy.stats")),  # a worker's
        ("maccal.cli.report", ("torch", "sklearn", "scipy.stats")),
    ],
)
def test_nobody_waits_for_what_is_not_needed(module, absent):
    words = f"import sys, {module}; print([name for name in {absent} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
