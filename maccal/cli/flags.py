"""A flag that does not apply is refused, never ignored."""


def refuse(where: str, **flags: object) -> None:
    """ValueError for the first of these flags that was given; those that were not are None.

    >>> refuse("a file of features", cache=None, root="data")
    Traceback (most recent call last):
    ...
    ValueError: --root does not apply to a file of features; leave it out
    """
    for name, value in flags.items():
        if value is not None and value is not False and value != ():
            flag = name.replace("_", "-")
            raise ValueError(f"--{flag} does not apply to {where}; leave it out")
