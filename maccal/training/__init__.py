"""Stage I: recipe, objective, loop, checkpoint."""

from maccal.training.loop import Diverged, History, fit, predict
from maccal.training.objective import Objective
from maccal.training.recipe import Recipe

__all__ = ["Diverged", "History", "Objective", "Recipe", "fit", "predict"]
