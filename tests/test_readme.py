"""The code in the README and in docs/ runs and prints what they say; their links and import paths
lead somewhere.
"""

import importlib
import importlib.util
import json
import re
from pathlib import Path
from statistics import mean

import numpy as np
import pytest

from maccal.features import find_head

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
ROWS = (ROOT / "results" / "starts.jsonl").read_text()
STARTS = [json.loads(line) for line in ROWS.splitlines()]
NUMBER = r"\d+\.\d+"


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def executed(page, **names):
    """The names that the page's code leaves behind."""
    for block in blocks(page, "python"):
        exec(compile(block, page, "exec"), names)
    return names


def same_but_for_rounding(printed, written):
    """Word for word; numbers may differ in the last bits that another processor rounds."""
    assert re.sub(NUMBER, "#", printed) == re.sub(NUMBER, "#", written)
    numbers = [float(number) for number in re.findall(NUMBER, written)]
    assert [float(number) for number in re.findall(NUMBER, printed)] == pytest.approx(
        numbers, abs=0.5
    )


def test_the_readme_prints_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    executed("README.md")
    (written,) = blocks("README.md", "text")
    same_but_for_rounding(capsys.readouterr().out, written)


def test_what_it_prints_is_compared():
    with pytest.raises(AssertionError):
        same_but_for_rounding("right 73.72 % of 997", "right 73.72 % of 998")
    with pytest.raises(AssertionError):
        same_but_for_rounding("right 73.72 %", "right 74.72 %")


def test_measuring(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    made = executed("docs/metrics.md")
    text = (ROOT / "docs" / "metrics.md").read_text()
    verdict = re.search(r"\*(Overconfident: .*?)\*", text)
    assert verdict.group(1) in capsys.readouterr().out
    assert "<svg" in (tmp_path / "reliability.svg").read_text()
    mc, probs, labels = made["mc"], made["probs"], made["labels"]
    assert made["total"].summary()["ece"] == mc.summary(probs, labels)["ece"]
    assert mc.compare(probs, made["better"], labels)["ece"].real


@pytest.mark.filterwarnings(
    "ignore:the inputs are no images", "ignore:views of the training rows disagree"
)
def test_calibrating():
    """With the network of the example; the names are those that the page uses."""
    from examples.calibrate import build

    model, train, val, _ = build()
    layer = model.get_submodule(find_head(model, next(iter(train))))
    names = {"weight": layer.weight, "bias": layer.bias, "train_loader": train, "val_loader": val}
    made = executed("docs/calibrate.md", model=model, **names)
    assert made["head"](made["z"]).shape == (300, 10)
    assert made["clf"].score(made["z"], made["y"]) > 0.9
    assert type(made["model"]) is type(model)


def starts_mean(networks, method, labels, key):
    """The mean over networks of the mean over halves and seeds."""
    means = []
    for network in networks:
        own = [row for row in STARTS if (row["network"], row["method"]) == (network, method)]
        means.append(mean(row[key] for row in own if row["labels"] == labels))
    return mean(means)


LINES = {
    "as trained": ("as trained", 0),
    "temperature scaling": ("temperature", 5000),
    "**MaC-Cal**": ("MaC-Cal", 5000),
    "the same training without masks": ("masks off", 5000),
    'a new classifier under masks (`start="fresh"`), 14 times as long': ("fresh head", 5000),
    "the paper's equations as printed": ("as printed", 0),
    "temperature scaling, labels": ("temperature", 5000),
    "temperature scaling, views": ("temperature", 0),
    "**MaC-Cal, views**": ("MaC-Cal", 0),
}


def test_the_tables_of_the_readme_are_those_of_the_rows():
    chosen_on = {"resnet20", "resnet56", "c10-heart", "c10-mixup", "c100-heart"}
    others = {row["network"] for row in STARTS} - chosen_on
    images = {row["network"] for row in STARTS if "shift" in row} - chosen_on
    text = (ROOT / "README.md").read_text().split("## How good is it?")[1].split("\n## ")[0]
    tables = re.findall(r"\|---\|---:\|---:\|---:\|\n((?:\|.*\n)+)", text)
    assert [len(table.splitlines()) for table in tables] == [6, 4]
    for networks, table in zip((others, images), tables, strict=True):
        for line in table.splitlines():
            title, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            found = [starts_mean(networks, *LINES[title], key) for key in ("accuracy", "ece")]
            loss = starts_mean(networks, *LINES[title], "nll")
            assert cells == [*(f"{100 * share:.2f} %" for share in found), f"{loss:.3f}"]
    few = [
        f"{100 * starts_mean(others, name, 100, 'ece'):.2f}" for name in ("temperature", "MaC-Cal")
    ]
    assert f"With 100 labels a temperature has the lower ECE: {few[0]} against {few[1]} %." in text
    seconds = [starts_mean(others, name, 5000, "seconds") for name in ("fresh head", "MaC-Cal")]
    assert f"{seconds[0] / seconds[1]:.0f} times as long" in text


def test_posthoc():
    """With predictions of one's own; the names are those that the page uses."""
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=1200)
    logits = 2 * rng.normal(size=(1200, 4)) + 4 * np.eye(4)[labels]
    made = executed(
        "docs/posthoc.md",
        logits=logits,
        labels=labels,
        new_logits=logits,
        view_logits=logits,
        train_logits=logits,
    )
    assert made["model"].weight_.shape == (4, 4)
    assert np.allclose(made["probs"].sum(1), 1)


def test_monitoring(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    watch = executed("docs/monitor.md")["watch"]
    (written,) = blocks("docs/monitor.md", "text")
    same_but_for_rounding(capsys.readouterr().out, written)
    assert watch.standing().fired


def test_the_monitor_is_as_good_as_its_page_says():
    measured = json.loads((ROOT / "results" / "monitor.json").read_text())
    text = (ROOT / "docs" / "monitor.md").read_text()
    share = {row["name"]: row["share"] for row in measured["false_alarms"]}
    assert f"in {share['test for one look, peeking']:.0%}".replace("%", " %") in text
    assert f"the calibration alarm in {100 * share['calibration']:.1f} %" in text
    real = {(row["corruption"], row["severity"]): row for row in measured["real"]}
    fog, noise = real["fog", 3], real["gaussian_noise", 1]
    assert fog["calibration"] is None
    assert f"noticed after {fog['drift']} images" in text
    promised, had = 100 * noise["expected"], 100 * noise["accuracy"]
    assert f"promised {promised:.1f} % and had {had:.1f} %" in text
    alarms = ("calibration", "accuracy", "drift")
    ours = [row for row in measured["false_alarms"] if row["name"].startswith(alarms)]
    assert len(ours) == 5
    assert all(row["high"] <= measured["alpha"] for row in ours)


def test_trust():
    """With digits; the numbers in the comments are those that come out."""
    made = executed("docs/trust.md")
    assert made["sets"].measure(made["new"], made["truth"])["coverage"] > 0.87
    assert made["answering"].found_
    assert len(made["lines"]) == 2


def test_training():
    assert len(executed("docs/train.md")["history"]) == 3


@pytest.mark.slow
def test_deploying(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    made = executed("docs/deploy.md")
    images = made["images"]
    expected = made["model"](images).detach()
    assert made["again"](images).equal(expected)
    assert made["program"].module()(images).equal(expected)
    np.testing.assert_allclose(made["logits"], expected, atol=1e-4)
    assert set(made["about"]) == {"maccal", "calibration", "weights_sha256"}
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert files == {"model.safetensors", "card.json", "README.md", "model.onnx"}


@pytest.mark.slow
def test_frameworks(tmp_path, monkeypatch, vision):
    pytest.importorskip("torchmetrics")
    monkeypatch.chdir(tmp_path)
    made = executed("docs/frameworks.md")
    assert made["numbers"]["ece"].item() == pytest.approx(0.4)
    assert made["probs"].shape == (1, 3)
    assert made["per_pixel"].shape == (2, 8, 8)


@pytest.mark.slow
def test_drawing(tmp_path, monkeypatch):
    (tmp_path / "results").symlink_to(ROOT / "results")
    monkeypatch.chdir(tmp_path)
    assert executed("docs/benchmark.md")["missing"] == {}
    assert (tmp_path / "leaderboard.pdf").read_bytes().startswith(b"%PDF")


def test_every_page_with_code_is_run():
    run = {
        "README.md",
        *(f"docs/{name}.md" for name in ("metrics", "calibrate", "posthoc", "monitor", "train")),
        *(f"docs/{name}.md" for name in ("deploy", "frameworks", "trust")),
    }
    with_code = {
        page.relative_to(ROOT).as_posix() for page in PAGES if "```python" in page.read_text()
    }
    assert with_code == run | {"docs/benchmark.md"}


def anchors(page):
    """Of its headings, as GitHub names them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in plain}


def broken_links(page):
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    assert broken_links(page) == []


def test_a_broken_link_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A title\n[a](page.md#a-title) [b](#no-title) [c](none.md) [d](https://e.f)")
    assert broken_links(page) == ["#no-title", "none.md"]


def leads_nowhere(path):
    """Whether a dotted name is neither a module nor an attribute of one."""
    names = path.split(".")
    if names[:2] == ["maccal", "integrations"]:  # found, not imported: frameworks take seconds
        return importlib.util.find_spec(path) is None
    found = importlib.import_module(names[0])
    for depth, name in enumerate(names[1:], 2):
        if not hasattr(found, name):
            try:
                found = importlib.import_module(".".join(names[:depth]))
            except ImportError:
                return True
        else:
            found = getattr(found, name)
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_import_paths_are_those_of_the_rooms(page):
    # maccal.md is a page, not a module
    paths = set(re.findall(r"\bmaccal(?:\.[A-Za-z_]\w*)+", page.read_text()))
    paths = {path for path in paths if not path.endswith((".md", ".py", ".npz"))}
    assert {path for path in paths if leads_nowhere(path)} == set()
    assert leads_nowhere("maccal.evaluation.rows")
    assert leads_nowhere("maccal.integrations.nothing")
