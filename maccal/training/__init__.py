"""Stage I: the recipe, what a method minimises, the loop, and its checkpoint."""

from maccal.training.loop import fit
from maccal.training.objective import Objective
from maccal.training.precision import precise
from maccal.training.prediction import predict
from maccal.training.recipe import Recipe
from maccal.training.steps import Diverged, History, Training

__all__ = [
    "Diverged",
    "History",
    "Objective",
    "Recipe",
    "Training",
    "fit",
    "precise",
    "predict",
]
