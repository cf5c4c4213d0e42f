"""Files are written whole or not at all, and say when they are damaged.

    write, write_with              a whole file or none: a hidden part, fsync, one rename
    write_all                      several files or none: all are on the disk before one is renamed
    write_json, read_json          one JSON object with its format and checksum inside: row.json
    write_sealed, read_sealed      any bytes behind a header line with format, size and checksum
    write_lines, read_lines        the same for JSON lines: history.jsonl
    write_tensors, read_tensors    safetensors, format and checksum in the metadata: networks, heads
    read_notes                     what such a file says of itself, without its tensors
    open_regular, read_bytes       regular files only, as a fifo would hang
    check_folder, make_folder      a folder to write into, unless a file is in its place
    locked                         one process at a time works on a folder
    sweep                          removes only the parts that killed processes left behind
    FileError                      everything that is wrong with a file: its name and the reason

Cost: one hash of the bytes, about a second per gigabyte.
"""

from maccal.io.errors import FileError, readable
from maccal.io.files import (
    flush,
    new_part,
    open_regular,
    read_bytes,
    sweep,
    write,
    write_all,
    write_with,
)
from maccal.io.folders import check_folder, make_folder
from maccal.io.formats import (
    DAMAGED,
    checksum,
    npz,
    parse_json,
    read_json,
    read_lines,
    read_notes,
    read_sealed,
    read_tensors,
    sealed,
    unsealed,
    write_json,
    write_lines,
    write_sealed,
    write_tensors,
)
from maccal.io.locks import locked

__all__ = [
    "DAMAGED",
    "FileError",
    "check_folder",
    "checksum",
    "flush",
    "locked",
    "make_folder",
    "new_part",
    "npz",
    "open_regular",
    "parse_json",
    "read_bytes",
    "read_json",
    "read_lines",
    "read_notes",
    "read_sealed",
    "read_tensors",
    "readable",
    "sealed",
    "sweep",
    "unsealed",
    "write",
    "write_all",
    "write_json",
    "write_lines",
    "write_sealed",
    "write_tensors",
    "write_with",
]
