"""The real predictions that benchmarks/posthoc.py measures calibrators on.

    python benchmarks/posthoc_predictions.py SHARED build/posthoc

writes two files with logits, labels and features z of 10,000 test images each: a public ResNet-20
on CIFAR-10, and a linear classifier of CIFAR-100 on its features, fitted on SOME training
images, few enough to be too sure of itself. A minute or two on one core.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from networks import cifar, normalised, public
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from maccal.features.extraction import extract, find_head

SOME = 10_000


def features(network: nn.Module, images: Tensor) -> np.ndarray:
    # the labels may be of other classes than the network's, so none are given
    batches = [(normalised(x), torch.zeros(len(x), dtype=torch.int64)) for x in images.split(500)]
    found = extract(network, batches)
    return found.z.numpy()


def cifar10(shared: Path, folder: Path) -> dict[str, np.ndarray]:
    """A public ResNet-20's own logits."""
    network = public(shared, 20)
    _, (images, labels) = cifar(shared, folder, 10)
    z = features(network, images)
    head = network.get_submodule(find_head(network, (normalised(images[:8]), labels[:8])))
    with torch.inference_mode():
        logits = head(torch.from_numpy(z)).numpy()
    return {"logits": logits, "labels": labels.numpy(), "z": z}


def cifar100(shared: Path, folder: Path) -> dict[str, np.ndarray]:
    """A linear classifier's logits, on features of a network that has seen other classes."""
    network = public(shared, 20)
    train, (images, labels) = cifar(shared, folder, 100)
    old = features(network, train[0][:SOME])
    z = features(network, images)
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    classifier.fit(old, train[1][:SOME].numpy())
    logits = classifier.decision_function(z).astype(np.float32)
    return {"logits": logits, "labels": labels.numpy(), "z": z}


def main(shared: Path, folder: Path) -> None:
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    save(folder / "cifar10-resnet20.npz", cifar10(shared, folder))
    save(folder / "cifar100-linear-on-resnet20.npz", cifar100(shared, folder))


def save(file: Path, arrays: dict[str, np.ndarray]) -> None:
    np.savez(file, allow_pickle=False, **arrays)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
