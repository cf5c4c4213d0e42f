"""The verb `maccal calibrate`: a run, a file of features, or a model of one's own."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import tyro

from maccal.calibration.registry import CALIBRATORS, calibrator_of
from maccal.calibration.stage2 import PRESETS, Stage2
from maccal.cli.flags import refuse
from maccal.cli.jobs import Done, Settings, calibrate_file, calibrate_model
from maccal.cli.output import answer, note, tell
from maccal.cli.printing import compact, show_run
from maccal.runs import calibrate_run, read_config
from maccal.runs.config import RunFeedback

DEFAULT = Stage2()


def calibrate(
    source: tyro.conf.Positional[str],
    calibrator: str = "maccal",
    preset: str | None = None,
    accuracy: float | None = None,
    head: str | None = None,
    cache: Path | None = None,
    feedback: RunFeedback | None = None,
    root: Path | None = None,
    device: str | None = None,
    config: tyro.conf.OmitArgPrefixes[Stage2] = DEFAULT,
    seed: int | None = None,
    out: Path | None = None,
) -> None:
    """Give a classifier a confidence that can be trusted: of a run, of a file, or of a model.

    Args:
        source: the folder of a run; features.npz with z, y and if at hand val_z, val_y (held out),
            test_z, test_y, weight, bias (as trained); or file.py:function, which returns model,
            train[, val[, test]].
        calibrator: maccal, temperature, vector, matrix, or of a run tst and vtst too. The choices
            of stage II below are those of maccal.
        preset: a named reading of MaC-Cal, whose choices are then shown below: default; paper, the
            equations as printed, which listen to the training rows; or a row of Table 5, vanilla,
            masked, restricted, restructured, static or decaying, each also with -regrow.
        accuracy: share of unseen rows that the classifier gets right, 0 to 1, where it is known
            and no held-out labels are given. Not of a run.
        head: name of the model's classifier, where it cannot be found.
        cache: folder for the model's features, so that they are extracted once.
        feedback: of a run: from the held-out labels of its data set (the default), from views of
            its training images (mirrored or shifted, then mixed; or mixed alone), or a guess: gamma
            times the accuracy on the training images.
        root: folder with the data sets, of a run.
        device: such as cuda, of a run or a model; else where the model is, or the processor.
        config: the choices of stage II.
        seed: number that settles weights, masks and order; by default 1. A run has its own.
        out: folder for <name>.head.safetensors, <name>.history.json and, with test rows,
            <name>.report.html; by default this one. Not of a run, whose files go beside it.
    """
    if calibrator != "maccal" and (config != DEFAULT or preset is not None):
        raise ValueError(f"the choices of stage II are MaC-Cal's; {calibrator} has none of them")
    check_preset(config, preset)
    choices = calibrator_of(calibrator, config if calibrator == "maccal" else None)
    if Path(source).is_dir():
        if preset == "paper":
            feedback = as_printed(feedback)
        refuse("a run", accuracy=accuracy, head=head, cache=cache, seed=seed, out=out)
        if feedback != "training":
            refuse_gamma(
                config, "held-out, views or mixed feedback; pass --feedback training with it"
            )
        folder = Path(source)
        method = f"{read_config(folder).method}+{calibrator}"
        show_run(
            calibrate_run(
                folder,
                root=root,
                device=device or "cpu",
                progress=True,
                method=method,
                stage2=choices,
                feedback=feedback,
            )
        )
        return
    refuse("a file or a model, only to a run", feedback=feedback, root=root)
    if not CALIBRATORS[calibrator].plain:
        raise ValueError(f"{calibrator} is for runs: its head is not made of plain layers")
    seed = 1 if seed is None else seed
    settings = Settings(calibrator, choices, seed, accuracy, head, cache, device, out or Path())
    if ":" in source:
        show(calibrate_model(source, settings))
        return
    refuse("a file of features, only to a model", head=head, cache=cache, device=device)
    show(calibrate_file(Path(source), settings))


def calibrate_of(words: Sequence[str]) -> Callable[..., None]:
    """The verb for a command line, whose preset settles the choices that its help shows."""
    return partial(calibrate, config=usual_choices(words))


def usual_choices(words: Sequence[str]) -> Stage2:
    """Those of the preset on the command line, so that --help shows them."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--preset", default="default")
    return PRESETS.get(parser.parse_known_args(words)[0].preset, DEFAULT)


def check_preset(config: Stage2, preset: str | None) -> None:
    """ValueError for a preset that there is not, or that a flag contradicts.

    What the preset does not decide, such as gamma, may be chosen beside it.
    """
    if preset is None:
        return
    if preset not in PRESETS:
        raise ValueError(f"no preset {preset!r}; the presets are {', '.join(PRESETS)}")
    named = PRESETS[preset]
    open_ones = replace(DEFAULT, start=named.start).settled(trained=True)
    for name, value in vars(config).items():
        own = getattr(named, name)
        decided = name == "start" or own != getattr(open_ones, name)
        if value != own and decided and preset != "default":
            flag = f"--{name.replace('_', '-')} {value}"
            raise ValueError(f"{flag}: the preset {preset} has {own}; leave one of them out")


def as_printed(feedback: RunFeedback | None) -> RunFeedback:
    """The equations as printed listen to the training rows, whatever else there is."""
    if feedback not in (None, "training"):
        words = "the equations as printed listen to the training rows"
        raise ValueError(f"--feedback {feedback} is not the preset paper: {words}")
    return "training"


def refuse_gamma(config: Any, where: str) -> None:
    """Gamma is a guess at what other feedback knows."""
    if config.gamma != DEFAULT.gamma:
        raise ValueError(f"--gamma does not apply to {where}")


def show(done: Done) -> None:
    """The numbers before and after, what the new classifier aimed at, and the files."""
    if done.models:
        tell(compact(done.models), "")
    last = done.history[-1]
    if "keep" in last:
        aim = f"confidence {last['confidence']:.2%}, wanted {last['target']:.2%}"
        words = f"keeps {last['keep']:.1%} of its weights in training; {aim}"
    else:
        words = f"has the temperature {last['temperature']:.4f}"
    tell(f"the new classifier {words}", done.feedback)
    files = [*done.files, *([] if done.report is None else [done.report])]
    rows = [model.row.content for model in done.models]
    answer({"models": rows, "last": last, "feedback": done.feedback, "files": files})
    for file in files:
        note(f"wrote {file}")
