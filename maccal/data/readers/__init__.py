"""One reader for each publisher's format: the files below a folder in, a DataSet out."""

from maccal.data.readers.cifar import read_cifar
from maccal.data.readers.cifar_c import (
    FOLDERS,
    SEVERITIES,
    has_cifar_c,
    one_severity,
    open_cifar_c,
    read_cifar_c,
    shifts,
)
from maccal.data.readers.digits import read_digits
from maccal.data.readers.svhn import read_svhn
from maccal.data.readers.tiny import read_tiny

__all__ = [
    "FOLDERS",
    "SEVERITIES",
    "has_cifar_c",
    "one_severity",
    "open_cifar_c",
    "read_cifar",
    "read_cifar_c",
    "read_digits",
    "read_svhn",
    "read_tiny",
    "shifts",
]
