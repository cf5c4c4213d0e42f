"""A state as a folder: settings.json, and one file per event.

    state/settings.json                          what was fixed when it was made
    state/events/<recorded>-<fingerprint>.event  whole files that never change

To append is to write one more file, whole or not at all: a process that is killed leaves the state
as it was before or as it is after. Several processes may append; the folder's lock gives the events
their order. To merge is to append the events of the other state that are not there yet. Every file
has its format and checksum, and names the event before it: damage and loss are noticed when the
state is read. What cannot be noticed is the loss of the very last files.
"""

from collections.abc import Collection
from pathlib import Path

from maccal.io import FileError, read_json, read_sealed, write_json, write_sealed
from maccal.monitoring.events import KIND, Event, packed, unpacked
from maccal.monitoring.settings import Settings

SETTINGS = "settings.json"
SETTINGS_KIND = "monitor 1"
EVENTS = "events"
SETTINGS_LOST = "it has events and no settings.json: restore that from a copy, or take a new folder"


def create(folder: Path, settings: Settings) -> None:
    """A state without events; ValueError if there is one, or what is left of one."""
    if (folder / SETTINGS).exists():
        raise ValueError(f"{folder} is a monitor already; its settings are fixed")
    if event_files(folder):
        raise FileError(folder, SETTINGS_LOST)
    write_json(folder / SETTINGS, SETTINGS_KIND, settings.values())


def read_settings(folder: Path) -> Settings:
    if not (folder / SETTINGS).exists():
        if event_files(folder):
            raise FileError(folder, SETTINGS_LOST)
        raise FileError(folder, "no monitor; make one with `maccal monitor FOLDER --new`")
    values = read_json(folder / SETTINGS, SETTINGS_KIND)
    try:
        return Settings.of(values)
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(folder / SETTINGS, f"not the settings of a monitor ({error})") from error


def event_files(folder: Path) -> list[str]:
    """The names of all events, as they were recorded."""
    return sorted(path.name for path in (folder / EVENTS).glob("*.event"))


def read_event(folder: Path, name: str) -> Event:
    path = folder / EVENTS / name
    data = read_sealed(path, KIND)
    try:
        return unpacked(data, path)
    except (KeyError, TypeError) as error:
        raise FileError(path, f"not an event of this version ({error})") from error


def write_event(folder: Path, event: Event) -> None:
    write_sealed(folder / EVENTS / event.stamp.file, KIND, packed(event))


def lost(events: Collection[Event]) -> str | None:
    """Which event is not there though another one follows it, in words; None if all are."""
    there = {event.stamp.fingerprint for event in events} | {""}
    for event in events:
        if event.stamp.after not in there:
            return f"the event {event.stamp.after}, before {event.stamp.file}, is lost"
    return None
