"""Data sets from their publishers' servers: fetched, verified, unpacked safely, and checked.

get(name, root)            download what is not there
check(name, root, reader)  the problems of what is there; none if all is well
listing(root)              one entry per set: from where, how large, whether it is there
data_root(root)            the folder of all data sets
verify(path, folder)       a file that is about to be read is the publisher's own, or FileError
SOURCES                    addresses, sizes and checksums
"""

from maccal.data.download.sets import Listed, check, data_root, get, listing
from maccal.data.download.sources import SOURCES, Known, Source
from maccal.data.download.verified import verify

__all__ = [
    "SOURCES",
    "Known",
    "Listed",
    "Source",
    "check",
    "data_root",
    "get",
    "listing",
    "verify",
]
