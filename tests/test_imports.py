"""A module imports only from modules to its left on the path of the data, and every module stands on it."""

import ast
import re
from pathlib import Path

import maccal

PACKAGE = Path(maccal.__file__).parent

# From probabilities to the report; within metrics, from the door to the summary.
PATH = [
    "maccal.io",
    "maccal.results",
    "maccal.typed",
    "maccal.paper",
    "maccal.memory",
    "maccal.parallel",
    "maccal.metrics._kernels",
    "maccal.metrics.arguments",
    "maccal.metrics.inputs",
    "maccal.metrics.bins",
    "maccal.metrics.miscalibration",
    "maccal.metrics.softmaxes",
    "maccal.metrics.temperature",
    "maccal.metrics.scores",
    "maccal.metrics.ranking",
    "maccal.metrics.resampling",
    "maccal.metrics.summaries",
    "maccal.metrics.sketch",
    "maccal.metrics.streaming",
    "maccal.metrics.paired",
    "maccal.metrics",
    "maccal.stage2",
    "maccal.data.augment",
    "maccal.data.pixels",
    "maccal.data.split",
    "maccal.data.sources",
    "maccal.data.archives",
    "maccal.data.transfer",
    "maccal.data.verified",
    "maccal.data.downloads",
    "maccal.data.blurs",
    "maccal.data.weather",
    "maccal.data.corruptions",
    "maccal.data.pickles",
    "maccal.data.matlab",
    "maccal.data.cifar",
    "maccal.data.cifar_c",
    "maccal.data.svhn",
    "maccal.data.tiny",
    "maccal.data.digits",
    "maccal.data",
    "maccal.models.net",
    "maccal.models.resnet",
    "maccal.models.densenet",
    "maccal.models",
    "maccal.losses.entropy",
    "maccal.losses.margins",
    "maccal.losses.focal",
    "maccal.losses.pairs",
    "maccal.losses.mixing",
    "maccal.losses",
    "maccal.recipes",
    "maccal.training",
    "maccal.heads",
    "maccal.batches",
    "maccal.fingerprints",
    "maccal.rowfile",
    "maccal.cache",
    "maccal.lookup",
    "maccal.rows",
    "maccal.classifiers",
    "maccal.features",
    "maccal.views",
    "maccal.calibration",
    "maccal.geometry",
    "maccal.posthoc",
    "maccal.methods.mixing",
    "maccal.methods.plp",
    "maccal.methods.balcal",
    "maccal.methods.tst",
    "maccal.methods",
    "maccal.estimator",
    "maccal.arrays",
    "maccal.tables",
    "maccal.parquet",
    "maccal.predictions",
    "maccal.plots",
    "maccal.figures.selection",
    "maccal.figures.drawing",
    "maccal.figures.motivation",
    "maccal.figures.methods",
    "maccal.figures.sensitivity",
    "maccal.figures",
    "maccal.report",
    "maccal.report.evaluation",
    "maccal.report.checks",
    "maccal.failures",
    "maccal.report.lines",
    "maccal.report.claims",
    "maccal.report.tables",
    "maccal.report.leaderboard",
    "maccal.runs",
    "maccal.folders",
    "maccal.evaluation",
    "maccal.pipeline",
    "maccal.benchmark",
    "maccal.executors",
    "maccal.demo",
    "maccal.jobs",
    "maccal.data_verbs",
    "maccal.bench_verb",
    "maccal.report_verb",
    "maccal",
    "maccal.cli",
    "maccal.__main__",
]


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def imports(source: str) -> set[str]:
    """Modules of the package that a source imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "absolute imports only"
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & set(PATH)
            found |= inner or {node.module}
    return {name for name in found if name.split(".")[0] == "maccal"}


def backward(sources: dict[str, str]) -> list[str]:
    return [
        f"{name} imports {other}"
        for name, source in sources.items()
        for other in imports(source)
        if PATH.index(other) >= PATH.index(name)
    ]


SOURCES = {name_of(path): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}


def test_every_module_stands_on_the_path():
    assert set(SOURCES) == set(PATH) - {"maccal.metrics._kernels"}


def test_imports_point_left():
    assert backward(SOURCES) == []


def test_the_test_can_fail():
    assert backward({"maccal.metrics.bins": "from maccal.plots import reliability"}) == ["maccal.metrics.bins imports maccal.plots"]
    assert backward({"maccal.metrics.bins": "def f():\n    import maccal.cli"}) == ["maccal.metrics.bins imports maccal.cli"]


def test_one_binning_function():
    """Nothing but bins.assign sorts values into bins."""
    pattern = re.compile(r"\b(digitize|bucketize|histogram)\(")
    users = {name for name, source in SOURCES.items() if pattern.search(source)}
    assert users == {"maccal.metrics.bins"}


def test_public_names_exist():
    assert all(hasattr(maccal, name) for name in maccal.__all__)
    assert maccal.__all__ == sorted(maccal.__all__, key=lambda name: (not name.isupper(), name.islower(), name))
