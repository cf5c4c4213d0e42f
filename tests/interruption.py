"""A training that ends in the middle, as a power cut would end it."""

from maccal.training import Objective


class Stop(Exception):
    pass


def stopping(after):
    """An objective whose inputs raise Stop after so many steps."""
    count = 0

    def inputs(x, y, generator):
        nonlocal count
        count += 1
        if count > after:
            raise Stop
        return x, y

    return Objective(inputs=inputs)
