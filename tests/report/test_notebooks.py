"""A real notebook, run by a real kernel: what its cells show, and how often."""

import base64
import io
import json
import os
import re
import sys

import nbformat
import numpy as np
import pytest
from matplotlib.figure import Figure
from nbclient import NotebookClient
from PIL import Image

import maccal as mc
from maccal.metrics.binary import BINARY
from maccal.metrics.multilabel import MULTILABEL
from maccal.metrics.summaries import METRICS

PROBS = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]])
NAMES = ["cat", "dog", "dog"]

CELLS = {
    "data": "import numpy as np, maccal as mc\n"
    "rng = np.random.default_rng(0)\n"
    "p = rng.uniform(0.5, 1, 2000)\n"
    "probs = np.stack([p, 1 - p], 1)\n"
    "labels = np.where(rng.random(2000) < p - 0.1, 'cat', 'dog')\n"
    "names = ['cat', 'dog']",
    "summary": "mc.summary(probs, labels, classes=names, interval=True)",
    "picture": "mc.reliability(probs, labels, classes=names, title='A model')",
    "assigned": "figure = mc.reliability(probs, labels, classes=names)",
    "again": "figure",
    "two": "mc.reliability({'a': probs, 'b': probs}, labels, classes=names, title='Two')",
    "axes": "import matplotlib.pyplot as plt\n"
    "figure, axes = plt.subplots()\n"
    "mc.reliability(probs, labels, classes=names, ax=axes);",
    "frame": "mc.Stream.of(probs, labels, classes=names).summary().to_frame()",
    "refused": "try:\n    mc.summary(100 * probs, labels, classes=names)\n"
    "except ValueError as error:\n    print(error)",
}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """What each cell shows, by name; the page of it is built/notebook.html, for people to look."""
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(source) for source in CELLS.values()]
    folder = tmp_path_factory.mktemp("notebook")
    before = os.environ.get("MPLBACKEND")
    os.environ.pop("MPLBACKEND", None)  # the kernel has its own
    NotebookClient(book, timeout=120, kernel_name="python3").execute(cwd=str(folder))
    if before is not None:
        os.environ["MPLBACKEND"] = before
    return dict(zip(CELLS, (cell.outputs for cell in book.cells), strict=True))


def pictures(shown):
    return [out for out in shown if "image/png" in out.get("data", {})]


@pytest.fixture(autouse=True)
def a_kernel(request):
    if "outputs" in request.fixturenames:
        pytest.importorskip("ipykernel")


@pytest.mark.slow
def test_a_summary_is_a_table(outputs):
    (shown,) = outputs["summary"]
    html = shown["data"]["text/html"]
    ece = re.search(r">ECE</th><td [^>]*>([\d.]+) %</td>", html)
    assert 7 < float(ece.group(1)) < 13  # it is right 10 points less often than it says
    assert "Overconfident: it says" in html
    assert shown["data"]["text/plain"].startswith("2,000 rows, 2 classes, 15 bins\nAccuracy")


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["picture", "assigned", "again", "two", "axes"])
def test_a_picture_is_shown_once(outputs, cell):
    (picture,) = pictures(outputs[cell])
    assert picture is outputs[cell][-1]
    image = Image.open(io.BytesIO(base64.b64decode(picture["data"]["image/png"])))
    assert image.width > 300
    assert len(np.unique(np.asarray(image.convert("L")))) > 20  # drawn, not blank


@pytest.mark.slow
def test_a_frame_has_the_names_of_a_stream(outputs):
    html = outputs["frame"][-1]["data"]["text/html"]
    assert "<th>aurc_binned</th>" in html
    assert "<th>aurc</th>" not in html
    assert "AURC (binned)" in html


@pytest.mark.slow
def test_percentages_get_their_hint(outputs):
    assert "look like percentages; divide each row by its sum" in outputs["refused"][0]["text"]


def test_no_kernel_no_pyplot(monkeypatch):
    """A script's figure is kept by nobody, and a terminal prints its repr."""
    import matplotlib.pyplot as plt

    figure = mc.reliability(PROBS, NAMES, classes=["cat", "dog"])
    assert isinstance(figure, Figure)
    assert plt.get_fignums() == []
    with pytest.raises(NotImplementedError):
        figure._ipython_display_()


def test_axes_and_titles():
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert mc.reliability(PROBS, [0, 1, 1], ax=left, title="mine") is left
    assert "mine" in [text.get_text() for text in left.texts]
    assert len(right.collections) == 0
    two = mc.reliability({"a": PROBS, "b": PROBS}, [0, 1, 1], title="$both")
    assert two.get_suptitle() == "$both"
    with pytest.raises(ValueError, match="2 models to draw; ax has room for one"):
        mc.reliability({"a": PROBS, "b": PROBS}, [0, 1, 1], ax=left)
    with pytest.raises(ValueError, match="ax is a ndarray; pass one matplotlib Axes"):
        mc.reliability(PROBS, [0, 1, 1], ax=figure.subplots(1, 2))
    with pytest.raises(ValueError, match="0 models to draw; pass at least one"):
        mc.reliability({}, [0, 1, 1])


def test_the_frame_is_the_summary():
    found = mc.summary(PROBS, NAMES, classes=["cat", "dog"], interval=True)
    frame = found.to_frame()
    assert list(frame.index) == list(METRICS)
    assert list(frame.columns) == ["label", "value", "low", "high", "null_low", "null_high"]
    for name in METRICS:
        assert frame.loc[name, "value"] == found[name]
        assert frame.loc[name, "low"] == found[f"{name}_low"]
    assert frame.attrs["verdict"] == found["verdict"]
    assert frame["label"].is_unique  # the same label only for the same number
    assert frame.loc["brier_refinement", "label"] == "Brier · refinement"
    assert json.loads(json.dumps(found)) == found  # still a plain dict


def test_a_stream_has_other_labels_for_other_numbers():
    exact = mc.summary(PROBS, [0, 1, 1]).to_frame()
    streamed = mc.Stream.of(PROBS, [0, 1, 1]).summary().to_frame()
    same = set(exact["label"]) & set(streamed["label"])
    assert same == {"Accuracy", "Mean confidence", "ECE", "MCE", "NLL", "Brier"}
    for label in same:
        one, other = (f.set_index("label").loc[label, "value"] for f in (exact, streamed))
        assert one == pytest.approx(other, abs=1e-12)


def test_without_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        mc.summary(PROBS, [0, 1, 1]).to_frame()


def test_html_is_escaped():
    found = mc.Summary(n=1, classes=2, bins=15, verdict="<script>", ece=0.1)
    assert "&lt;script&gt;" in found._repr_html_()
    assert "<script>" not in found._repr_html_()


def test_a_prompt_shows_the_table():
    found = mc.summary(PROBS, [0, 1, 1])
    assert repr(found) == str(found)
    assert repr(found).startswith("3 rows, 2 classes, 15 bins\nAccuracy ")
    assert repr(mc.Summary(ece=0.1)) == "{'ece': 0.1}"


def test_other_summaries_show_their_own_numbers():
    """A binary Brier score is half of that of two columns: the table is the binary one."""
    scores, labels = np.array([0.9, 0.9, 0.2, 0.1]), ["spam", "ham", "ham", "ham"]
    found = mc.binary_summary(scores, labels, classes=["ham", "spam"])
    assert found == mc.binary_summary(scores, [1, 0, 0, 0])
    assert list(found.to_frame().index) == list(BINARY)
    assert ">27.50 %</td>" in found._repr_html_()
    assert "4 rows, binary, 15 bins" in found._repr_html_()
    several = mc.multilabel_summary(PROBS, [[1, 0], [1, 0], [0, 1]], names=["<cat>", "dog"])
    assert list(several.to_frame().index) == list(MULTILABEL)
    assert "&lt;cat&gt;" in several._repr_html_()  # the line of each label is there, too
    assert several._repr_html_().count("<table>") == 2


def test_a_listing_is_a_table():
    found = mc.by_class(PROBS, NAMES, names=["cat", "dog"])
    assert [line["class"] for line in found] == ["cat", "dog"]
    assert found._repr_html_().count("<tr>") == 1 + len(found)
    assert repr(found) == str(found)
