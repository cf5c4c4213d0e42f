"""How large a grid of runs is: its data sets and networks, how they train, and with which seeds.

`paper` is the paper's protocol to the letter. `full` has all training images with the paper's crops
and flips, and a network that two cores train in nine minutes of each; `cpu` is the same grid on
subsets, trained without augmentation until vanilla knows its images by heart, as the paper's
networks do.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from maccal.bench.readings import EARLIER
from maccal.calibration.stage2 import Stage2
from maccal.runs import Config
from maccal.training.recipe import RECIPES, Recipe

FIRST_SEED = 1
# the methods whose spread over seeds is worth its time where time is short
SEEDED = ("vanilla", "mixup", "mit", "plp", "balcal", "tst", "vtst", "temperature", "maccal")
ALPHAS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True)
class Scale:
    """How large the grid is: the data sets and their networks, and how stage I trains."""

    networks: Mapping[str, tuple[str, ...]]
    limits: Mapping[str, int | None]
    recipes: Mapping[str, Recipe]
    alphas: tuple[float, ...] = ALPHAS
    # test images that are corrupted, None is all; rows recorded with fewer stay valid and say so
    shifted: int | None = None
    # by data set the methods that have more seeds than the first; None: all methods, everywhere
    more_seeds: Mapping[str, tuple[str, ...]] | None = None
    # the paper's own networks, tried on CIFAR-10, and how each trains
    trials: Mapping[str, Recipe] = field(default_factory=dict)
    # by method, the settings or choices of its runs where these are not the method's own
    own: Mapping[str, Any] = field(default_factory=dict)
    readings: bool = True  # whether other readings of a method are run beside it

    @property
    def main(self) -> str:
        """The network of the figures on CIFAR-10."""
        return self.networks["cifar10"][0]

    @property
    def last(self) -> str:
        """The network of the ablation and of the gamma figure."""
        return self.networks["cifar100"][-1]

    def has(self, config: Config) -> bool:
        """Whether a run is made: with the first seed all of them.

        With others those methods alone that have more, as they are by themselves or as printed, and
        on the networks of the tables.
        """
        if self.more_seeds is None or config.seed == FIRST_SEED:
            return True
        usual = not config.changes or config.stage2 == Stage2.paper()
        named = config.method in self.more_seeds.get(config.data, ())
        return usual and named and config.model in self.networks[config.data]


FOUR = ("resnet50", "resnet110", "wrn26_10", "densenet121")
# epochs of all 45,000 images that two cores train in about an hour, by the networks' arithmetic
HOUR = {"resnet50": 5, "resnet110": 2, "wrn26_10": 1, "densenet121": 4}
QUICK = Recipe(epochs=9, schedule="cosine", padding=0, flip=False, watch=100)
# resnet10: 82.8 % on CIFAR-10 and 54.3 % on CIFAR-100, overconfident by 3 points
SHORT = Recipe(epochs=16, schedule="cosine", watch=4)
# 3,600 images of 40 classes are but 28 steps per epoch: 16 epochs would be 450 steps, these are 840
FEW = replace(RECIPES["tiny-imagenet"], epochs=30, schedule="cosine", watch=4)
SCALES: Mapping[str, Scale] = {
    "paper": Scale(
        {"cifar10": FOUR, "cifar100": FOUR, "tiny-imagenet": ("resnet50_tiny",)},
        {},
        RECIPES,
        trials=dict.fromkeys(FOUR, RECIPES["cifar10"]),
    ),
    "full": Scale(
        {"cifar10": ("resnet10",), "cifar100": ("resnet10",), "tiny-imagenet": ("resnet10",)},
        {},
        {"cifar10": SHORT, "cifar100": SHORT, "tiny-imagenet": FEW},
        alphas=(0.2, 1.0, 5.0),
        shifted=2_000,
        more_seeds={"cifar10": SEEDED, "cifar100": SEEDED},
        trials={name: replace(SHORT, epochs=epochs) for name, epochs in HOUR.items()},
    ),
    "cpu": Scale(
        {"cifar10": ("resnet10",), "cifar100": ("resnet10",)},
        {"cifar10": 10_000, "cifar100": 20_000},
        {"cifar10": QUICK, "cifar100": replace(QUICK, epochs=13)},
        alphas=(0.2, 1.0, 5.0),
        shifted=2_000,  # the recorded rows have 500
        own=EARLIER,
        readings=False,
    ),
}
