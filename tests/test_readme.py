"""The code in the README and in the pages that have some runs, and says what the README says it
does.
"""

import re
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_readme_code(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        exec(block, names)
    out = capsys.readouterr().out
    verdict = re.search(r"\*(Overconfident: .*?)\*", README).group(1)
    assert verdict in out
    assert (tmp_path / "reliability.svg").stat().st_size > 10_000
    assert (
        names["total"].summary()["ece"]
        == names["mc"].summary(names["probs"], names["labels"])["ece"]
    )
    assert names["mc"].compare(names["probs"], names["better"], names["labels"])["ece"].real


def test_docs_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in re.findall(
        r"```python\n(.*?)```",
        (Path(__file__).parents[1] / "docs" / "train.md").read_text(),
        re.DOTALL,
    ):
        exec(block, names)
    assert len(names["history"]) == 3


def test_links_lead_somewhere():
    root = Path(__file__).parents[1]
    assert all((root / link).exists() for link in re.findall(r"\]\(([\w./-]+)\)", README))
