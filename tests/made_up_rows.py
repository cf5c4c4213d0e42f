"""Made-up rows of runs, for whatever is made of rows: lines, claims, tables, figures and pages."""

from maccal.bench.lines import Setting
from maccal.evaluation.older import changes, stages
from maccal.evaluation.row import DiagramBin, Ran, Row

SHAPE = [[50, 0.3, 0.25], [150, 0.62, 0.5], [800, 0.96, 0.9]]
HERE = Setting("cifar10", 0, "resnet8")


def row(
    method,
    seed=1,
    ece=0.05,
    *,
    data="cifar10",
    model="resnet8",
    limit=None,
    variant=None,
    width=0.01,
    seconds=100.0,
    **more,
):
    """A row with an interval of ECE of this width and a null band from 0.5 to 1.2 %.

    `variant` says what is not the method's own, as the names of runs do.
    """
    about = {key: more.pop(key, None) for key in ("feedback", "stage2")}
    settings = more.pop("settings", {})
    numbers = {
        "ece": ece,
        "ece_low": ece - width / 2,
        "ece_high": ece + width / 2,
        "ece_null_low": 0.005,
        "ece_null_high": 0.012,
        "accuracy": 0.9,
        "accuracy_low": 0.895,
        "accuracy_high": 0.905,
        "aece": ece,
        "mce": 3 * ece,
        "nll": 0.4 + ece,
    }
    for key in ("aece", "mce"):
        numbers |= {f"{key}_low": 0.9 * numbers[key], f"{key}_high": 1.1 * numbers[key]}
    for key in ("accuracy", "aece", "mce"):
        numbers |= {f"{key}_null_low": 0.01, f"{key}_null_high": 0.02}
    for key in ("accuracy", "confidence"):
        if key in more:
            numbers[key] = more.pop(key)
    first, second = stages(method)
    place = f"{data}.{limit}-{model}" if limit else f"{data}-{model}"
    run = {"data": data, "model": model, "limit": limit, "seed": seed}
    words = changes(f"{place}-{variant or method}-s{seed}", run, second)
    return Row(
        f"{place}-{variant or method}-s{seed}",
        ran=Ran(
            data,
            model,
            first,
            second,
            seed,
            limit=limit,
            settings=settings,
            calibration=about["stage2"],
            feedback=about["feedback"],
            changes=tuple(words),
        ),
        trained={"epochs": 24, "seconds": seconds},
        diagram=tuple(DiagramBin(*one) for one in SHAPE),
        verdict=more.pop("verdict", "Overconfident."),
        numbers=numbers,
        **more,
    )


def seeded(method, eces, **more):
    return [row(method, seed, ece, **more) for seed, ece in enumerate(eces, 1)]
