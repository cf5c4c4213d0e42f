"""Any torch model: find its head, extract its features once, keep them; harder views of inputs."""

from maccal.features.extraction import Features, extract
from maccal.features.finding import find_head
from maccal.features.views import mixed

__all__ = ["Features", "extract", "find_head", "mixed"]
