"""Batches and late labels in files; what is wrong with one is said in one line."""

import gzip

import numpy as np
import pytest

from maccal.io import FileError
from maccal.monitoring.files import read_batch, read_late

P = np.array([[0.7, 0.3], [0.4, 0.6], [0.9, 0.1]])


def test_npz(tmp_path):
    path = tmp_path / "batch.npz"
    np.savez(path, probs=P, labels=[0, -1, 1], ids=["a", "b", "c"])
    found = read_batch(path)
    assert found.kind == "probs"
    assert found.scores.tolist() == P.tolist()
    assert found.labels.tolist() == [0, -1, 1]
    assert found.ids.tolist() == ["a", "b", "c"]
    np.savez(path, logits=P)
    assert read_batch(path)[1:] == ("logits", None, None, ())


def test_csv_with_names_and_empty_labels(tmp_path):
    path = tmp_path / "batch.csv"
    path.write_text(
        "id,prob_cat,label,note,prob_dog\n7,0.7,dog,x,0.3\n8,0.4,,y,0.6\n9,0.9,0,z,0.1\n"
    )
    found = read_batch(path)
    assert found.scores.tolist() == P.tolist()
    assert found.labels.tolist() == [1, -1, 0]
    assert found.ids.tolist() == ["7", "8", "9"]
    assert found.names == ("cat", "dog")
    late = tmp_path / "late.csv"
    late.write_text("label,id\ncat,8\n")
    ids, labels = read_late(late, found.names)
    assert (ids.tolist(), labels.tolist()) == (["8"], [0])


def test_a_packed_csv(tmp_path):
    text = "id,prob_0,prob_1,label\na,0.7,0.3,0\n"
    (tmp_path / "batch.csv").write_text(text)
    (tmp_path / "batch.csv.gz").write_bytes(gzip.compress(text.encode()))
    plain, packed = read_batch(tmp_path / "batch.csv"), read_batch(tmp_path / "batch.csv.gz")
    assert packed.scores.tolist() == plain.scores.tolist() == [[0.7, 0.3]]
    assert read_late(tmp_path / "batch.csv.gz")[0].tolist() == ["a"]


def test_csv_with_numbers_in_any_order(tmp_path):
    path = tmp_path / "batch.csv"
    path.write_text("logit_1,logit_0\n1,2\n3,4\n")
    found = read_batch(path)
    assert (found.kind, found.labels, found.ids) == ("logits", None, None)
    assert found.scores.tolist() == [[2, 1], [4, 3]]


def test_late_npz(tmp_path):
    np.savez(tmp_path / "late.npz", ids=[3, 4], labels=[1, 0])
    ids, labels = read_late(tmp_path / "late.npz")
    assert (ids.tolist(), labels.tolist()) == ([3, 4], [1, 0])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no rows below the header"),
        ("prob_0,prob_1\n", "no rows below the header"),
        ("a,b\n1,2\n", "expected prob_0, prob_1"),
        ("prob_0,logit_1\n1,2\n", "expected prob_0, prob_1"),
        ("prob_0,prob_2\n1,2\n", "numbered 0, 2"),
        ("prob_0,prob_1\n0.5,0.5\n0.5\n", "row 1 has 1 fields, the header 2"),
        ("prob_0,prob_1\n0.5,half\n", "not a table of numbers"),
        ("prob_0,prob_1,label\n0.5,0.5,\n0.5,0.5,horse\n", "label 'horse' in row 1"),
        ("prob_0,prob_1,id,ids\n0.5,0.5,1,2\n", "two columns are called id"),
    ],
)
def test_wrong_tables(tmp_path, text, words):
    path = tmp_path / "batch.csv"
    path.write_text(text)
    with pytest.raises(FileError, match=words):
        read_batch(path)


def test_wrong_files(tmp_path):
    path = tmp_path / "batch.npz"
    np.savez(path, probs=P, logits=P)
    with pytest.raises(FileError, match="both logits and probs; choose with --kind"):
        read_batch(path)
    assert read_batch(path, "logits").kind == "logits"
    np.savez(path, labels=[0, 1])
    with pytest.raises(FileError, match="no logits or probs; found labels"):
        read_batch(path)
    with pytest.raises(FileError, match="found labels; expected ids and labels"):
        read_late(path)
    with pytest.raises(FileError, match=r"unknown suffix '.txt'; expected .npz, .csv or .csv.gz"):
        read_batch(tmp_path / "batch.txt")
    (tmp_path / "late.csv").write_text("name,label\na,1\n")
    with pytest.raises(FileError, match="columns name, label; expected id and label"):
        read_late(tmp_path / "late.csv")
