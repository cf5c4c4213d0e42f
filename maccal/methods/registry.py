"""The methods of the paper's Table 1 as rows, each once, with the settings its authors give.

    METHODS["mbls"]                               the row: title, paper, settings, and so on
    settings_of("mbls", "cifar10", "resnet50")    its settings on that data set and network
    method("mbls+maccal")                         stage I of one method, stage II of another;
                                                  "maccal" alone is vanilla and then maccal

A method of stage I is an Objective for maccal.training.fit. Three methods (tst, vtst, maccal) are a
new head for a trained network: stage II. So is `temperature`, the yardstick, which is not in
Table 1: it is in YARDSTICKS.
"""

from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor, nn

from maccal.methods import losses
from maccal.methods.balcal import balcal, dual
from maccal.methods.mixing import mit_objective, mixup_objective
from maccal.methods.plp import cuts_of, plp_objective
from maccal.methods.values import checked
from maccal.models import Net
from maccal.plugins import check_name
from maccal.training.objective import Objective

Settings = Mapping[str, Any]
ANY = ""  # in the keys of Method.own: any network


def on_logits(
    loss: Callable[..., Tensor], network: nn.Module, x: Tensor, y: Tensor
) -> tuple[Tensor, Tensor]:
    logits = network(x).float()
    return loss(logits, y), logits


def of_loss(loss: Callable[..., Tensor]) -> Callable[..., Objective]:
    """Makes the objective of a method that is no more than a loss of logits and labels."""
    return lambda network, **settings: Objective(loss=partial(on_logits, partial(loss, **settings)))


def unchanged(network: Net, seed: int) -> Net:
    return network


@dataclass(frozen=True)
class Method:
    """A row: what a method is called, where it comes from, its settings, and what it does."""

    title: str  # its name in Table 1
    paper: str
    # Stage I: takes the network and the settings, and returns what to minimise. None for stage II.
    objective: Callable[..., Objective] | None = None
    # The settings, unless `own` has others for the data set and the network.
    settings: Settings = field(default_factory=dict)
    # The settings at which the method is exactly cross-entropy; None if there are none. For tests.
    plain: Settings | None = None
    # Other settings that the authors give for a data set and a network, keyed by both.
    own: Mapping[tuple[str, str], Settings] = field(default_factory=dict)
    # Which settings no source gives, and how we chose them, in words.
    invented: str = ""
    # Takes the network and the seed, and returns what is trained: BalCAL adds a head.
    network: Callable[[Net, int], Any] = unchanged
    # Stage II: the name of its calibrator. None for a method of stage I.
    second: str | None = None
    # The words that may be the value of a setting, for those that are words.
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Whether the grids of tables and figures have it.
    tabled: bool = True


CIFARS = ("cifar10", "cifar100")
DFL = {  # the gammas of the authors' table
    ("cifar10", "resnet50"): 5.0,
    ("cifar10", "resnet110"): 4.5,
    ("cifar10", "wrn26_10"): 2.6,
    ("cifar10", "densenet121"): 5.0,
    ("cifar100", "resnet50"): 5.0,
    ("cifar100", "resnet110"): 6.1,
    ("cifar100", "wrn26_10"): 3.9,
    ("cifar100", "densenet121"): 3.4,
    ("tiny-imagenet", "resnet50_tiny"): 2.3,
}

METHODS: dict[str, Method] = {
    "vanilla": Method("Vanilla", "cross-entropy", of_loss(losses.cross_entropy), plain={}),
    "acls": Method(
        "ACLS",
        "Park, Noh, Ham: ACLS: Adaptive and Conditional Label Smoothing for Network Calibration. "
        "ICCV 2023",
        of_loss(losses.acls),
        {"margin": 10.0, "alpha": 0.1, "top": 1.0, "rest": 0.1},
        plain={"alpha": 0.0},
        invented="the margin on CIFAR: the authors give 10 for Tiny-ImageNet only",
    ),
    "ls": Method(
        "LS",
        "Szegedy et al.: Rethinking the Inception Architecture for Computer Vision. CVPR 2016",
        of_loss(losses.label_smoothing),
        {"alpha": 0.05},
        plain={"alpha": 0.0},
    ),
    "mbls": Method(
        "MbLS",
        "Liu, Ben Ayed, Galdran, Dolz: The Devil is in the Margin: Margin-based Label Smoothing. "
        "CVPR 2022",
        of_loss(losses.mbls),
        {"margin": 10.0, "alpha": 0.1},
        plain={"alpha": 0.0},
        own={(data, ANY): {"margin": 6.0} for data in CIFARS},
        invented="margin 6 on CIFAR: that of two re-implementations; "
        "the authors give 10 for Tiny-ImageNet",
    ),
    "mixup": Method(
        "mixup",
        "Thulasidasan et al.: On Mixup Training: Improved Calibration and Predictive Uncertainty. "
        "NeurIPS 2019",
        lambda network, **settings: mixup_objective(**settings),
        {"alpha": 1.0},
        plain={"alpha": 0.0},
    ),
    "mit": Method(
        "MIT",
        "Wang, Li, Zhao, Heng, Zhang: On the Pitfall of Mixup for Uncertainty Calibration. "
        "CVPR 2023",
        lambda network, **settings: mit_objective(**settings),
        {"alpha": 1.0, "margin": 0.0, "where": "logits"},  # MIT-L; where="all" is MIT-A
        words={"where": ("logits", "all")},
    ),
    "fl": Method(
        "FL",
        "Mukhoti et al.: Calibrating Deep Neural Networks using Focal Loss. NeurIPS 2020",
        of_loss(losses.focal),
        {"gamma": 3.0},
        plain={"gamma": 0.0},
    ),
    "flsd": Method(
        "FLSD",
        "Mukhoti et al.: Calibrating Deep Neural Networks using Focal Loss. NeurIPS 2020",
        of_loss(losses.flsd),
        {"gammas": (5.0, 3.0, 3.0)},
        plain={"gammas": (0.0, 0.0, 0.0)},
    ),
    "dfl": Method(
        "DFL",
        "Tao, Dong, Xu: Dual Focal Loss for Calibration. ICML 2023",
        of_loss(losses.dual_focal),
        {"gamma": 5.0},
        plain={"gamma": 0.0},
        own={key: {"gamma": gamma} for key, gamma in DFL.items()},
        invented="gamma 5 for networks that the authors did not train",
    ),
    "cpc": Method(
        "CPC",
        "Cheng, Vasconcelos: Calibrating Deep Neural Networks by Pairwise Constraints. CVPR 2022",
        of_loss(losses.cpc),
        {"discrimination": 0.1, "exclusion": 1.0},
        plain={"discrimination": 0.0, "exclusion": 0.0},
        invented="the weights: the authors published no code, these are a re-implementation's",
    ),
    "mmce": Method(
        "MMCE",
        "Kumar, Sarawagi, Jain: Trainable Calibration Measures for Neural Networks "
        "from Kernel Mean Embeddings. ICML 2018",
        of_loss(losses.mmce),
        # the form of all public code, about 1 / 64 of the formula at batches of 128
        {"weight": 2.0, "form": "as coded"},
        plain={"weight": 0.0},
        invented="weight 2: that of Mukhoti et al. 2020 for this form on CIFAR; "
        "the authors give weights for texts only",
        words={"form": ("as coded", "weighted", "unweighted")},
    ),
    "plp": Method(
        "PLP",
        "Wang, Zhang: Calibration Bottleneck: "
        "Over-compressed Representations are Less Calibratable. ICML 2024",
        lambda network, power: plp_objective(cuts_of(network), power),
        {"power": 1.0},
        invented="where to cut every network but ResNet-50",
    ),
    "tst": Method(
        "TST",
        "Jordahn, Olmos: Decoupling Feature Extraction and Classification Layers "
        "for Calibrated Neural Networks. ICML 2024",
        second="tst",
        invented="the width of the head, 128: the default of the authors' classes; "
        "features are cached, where the authors augment and run the body in train mode",
    ),
    "vtst": Method(
        "VTST",
        "Jordahn, Olmos: Decoupling Feature Extraction and Classification Layers "
        "for Calibrated Neural Networks. ICML 2024",
        second="vtst",
        invented="the width of the head, 128: the default of the authors' classes; "
        "features are cached, where the authors augment and run the body in train mode",
    ),
    "balcal": Method(
        "BalCAL",
        "Ni et al.: Balancing Two Classifiers via a Simplex ETF Structure for Model Calibration. "
        "CVPR 2025",
        lambda network, **settings: balcal(**settings),
        {"delta": 0.95},
        network=dual,
        invented="delta 0.95 beyond CIFAR-10",
    ),
    "maccal": Method(
        "Ours",
        "MaC-Cal: Mask-based Classifier Calibration. Pattern Recognition 177, 2026",
        second="maccal",
    ),
}

SCALINGS = (
    "Berta, Holzmüller, Jordan, Bach: Structured Matrix Scaling for Multi-Class Calibration. 2025"
)
# stage II beside the paper's methods: maps of the logits, and what users register
YARDSTICKS: dict[str, Method] = {
    "temperature": Method(
        "Temperature",
        "Guo, Pleiss, Sun, Weinberger: On Calibration of Modern Neural Networks. ICML 2017",
        second="temperature",
    ),
    "vector": Method("Vector", SCALINGS, second="vector", tabled=False),
    "matrix": Method("Matrix", SCALINGS, second="matrix", tabled=False),
}
EVERY: Mapping[str, Method] = ChainMap(
    YARDSTICKS, METHODS
)  # METHODS first, as it goes through them

# Table 3: the methods of stage I that the paper follows by MaC-Cal
BEFORE_MACCAL = ("acls", "ls", "mbls", "mixup", "mit", "fl", "flsd", "dfl", "cpc", "mmce")
COMBINATIONS = tuple(f"{name}+maccal" for name in BEFORE_MACCAL)


class Plan(NamedTuple):
    """The names of stage I and, where there is one, of stage II."""

    first: str
    second: str | None

    @property
    def name(self) -> str:
        """The shortest name: vanilla before a stage II is not said.

        >>> method("vanilla+maccal").name, method("ls+tst").name
        ('maccal', 'ls+tst')
        """
        if self.second is None:
            return self.first
        return self.second if self.first == "vanilla" else f"{self.first}+{self.second}"


def method(name: str) -> Plan:
    """A method by its name, or two joined by a plus: one of stage I, then one of stage II.

    >>> method("acls+maccal"), method("tst")
    (Plan(first='acls', second='maccal'), Plan(first='vanilla', second='tst'))
    """
    parts = name.split("+")
    for part in parts:
        if part not in EVERY:
            raise ValueError(
                f"no method {part!r}; the methods are {', '.join(EVERY)}, "
                "or two of them, such as acls+maccal"
            )
    heads = [part for part in parts if EVERY[part].second]
    networks = [part for part in parts if not EVERY[part].second] or ["vanilla"]
    if parts not in (networks, heads, networks + heads) or len(networks) > 1 or len(heads) > 1:
        second = ", ".join(key for key, row in EVERY.items() if row.second)
        raise ValueError(
            f"{name!r} is not a method of stage I and then one of stage II, which are {second}"
        )
    return Plan(networks[0], heads[0] if heads else None)


def register(name: str, row: Method) -> None:
    """Add a method of one's own; one that has a `second` is a method of stage II."""
    check_name(name, EVERY, "method")
    if (row.objective is None) == (row.second is None):
        raise ValueError(f"{name}: a method has an objective (stage I) or a second (stage II)")
    if row.second is None:
        METHODS[name] = row
    else:
        YARDSTICKS[name] = row


def settings_of(
    name: str, data: str, model: str, changes: Settings | None = None
) -> dict[str, Any]:
    """The settings of a method of stage I on a data set and a network.

    The row's settings, over them the authors' own for that data set and network, over these the
    changes.

    >>> settings_of("mbls", "cifar10", "resnet20")
    {'margin': 6.0, 'alpha': 0.1}
    >>> settings_of("mbls", "tiny-imagenet", "resnet50_tiny", {"alpha": 0.2})
    {'margin': 10.0, 'alpha': 0.2}
    """
    row = METHODS[name]
    own = {}
    for key, value in (changes or {}).items():
        if key not in row.settings:
            known = f"its settings are {', '.join(row.settings)}" if row.settings else "it has none"
            raise ValueError(f"{name} has no setting {key!r}; {known}")
        own[key] = checked(f"{name}: {key}", value, row.settings[key], row.words.get(key))
    return {
        **row.settings,
        **row.own.get((data, ANY), {}),
        **row.own.get((data, model), {}),
        **own,
    }
