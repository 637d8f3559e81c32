"""What the text of an option means. Each function returns the value, or raises ValueError saying what is wanted.

Must not import TensorFlow: a bad argument has to be refused at once.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dtj_trainer.config.data import CACHES, FeatureSpec
from dtj_trainer.config.store_url import Location, is_url
from dtj_trainer.config.store_url import place as place_of


def given(text: str) -> str:
    if not text:
        raise ValueError("empty; give a value, or leave the option out")
    return text


def place(text: str) -> Path | Location:
    return place_of(given(text))


def directory(text: str) -> Path:
    if is_url(text):
        raise ValueError("give a directory of this machine, not a URL")
    return Path(given(text))


def whole(minimum: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = minimum - 1
        if number < minimum:
            raise ValueError(f"give a whole number of at least {minimum}")
        return number

    return parse


def positive(text: str) -> float:
    number = _float(text)
    if not 0 < number < math.inf:
        raise ValueError("give a number above 0")
    return number


def _float(text: str) -> float:
    """The number; NaN, which no comparison accepts, if it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise ValueError("give a port from 1 to 65535")
    return int(text)


def tpu_name(text: str) -> str:
    for runtime in () if text == "local" else text.split(","):
        scheme, _, address = runtime.partition("://")
        host, _, port = address.rpartition(":")
        if scheme != "grpc" or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError("give local, for the chips of this host, or grpc://host:port, several with commas")
    return text


def one_of(names: Sequence[str], kind: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(f"no such {kind}; this trainer knows {', '.join(names)}")
        return text

    return parse


def true(_: str) -> bool:
    return True


def validation(text: str) -> str | float:
    """A share of the examples, or where those are that are held out."""
    try:
        share = float(text)
    except ValueError:
        return given(text)
    if not 0 < share <= 0.5:
        raise ValueError("give a share above 0 and at most 0.5, or the path of held-out files")
    return share


def image_size(text: str) -> tuple[int, int]:
    height, _, width = text.partition("x")
    if not (height.isdecimal() and width.isdecimal() and int(height) and int(width)):
        raise ValueError("give HEIGHTxWIDTH in pixels, such as 64x96")
    return int(height), int(width)


def names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise ValueError("give names with commas between them")
    return names


def settings(text: str) -> Mapping[str, bool | int | float]:
    found: dict[str, bool | int | float] = {}
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if not name.isidentifier() or name in found:
            raise ValueError("give NAME=NUMBER, or NAME=true or NAME=false, each name once, with commas between them")
        found[name] = number(name, value)
    return found


def number(name: str, text: str) -> bool | int | float:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise ValueError(f"{name}: give a number, true or false")


def features(text: str) -> tuple[FeatureSpec, ...]:
    return tuple(FeatureSpec.of(part) for part in names(text))


def cache(text: str) -> str:
    if text not in CACHES:
        raise ValueError(
            "give auto, memory or none; to keep decoded examples on a disk, write them once by Dataset.save of "
            "tf.data, and load them in a function of --data"
        )
    return text


def class_weights(text: str) -> tuple[float, ...]:
    """The weights of the classes 0, 1, ... of text such as `0:1,1:2.5`; as in Keras no class may be missing.

    Raises:
        ValueError: it is not like that.
    """
    found: dict[int, float] = {}
    for pair in text.split(","):
        label, _, weight = pair.partition(":")
        try:
            number, value = int(label), float(weight)
        except ValueError:
            raise ValueError(f"{pair.strip()!r} is not a class and its weight, such as 0:1.5") from None
        if number in found:
            raise ValueError(f"class {number} is given twice")
        if not 0 <= value < math.inf:
            raise ValueError(f"the weight of class {number} is {weight.strip()}; give a number from 0 on")
        found[number] = value
    if missing := [str(number) for number in range(max(found) + 1) if number not in found]:
        raise ValueError(f"class {', '.join(missing)} is missing; give each class from 0 on a weight")
    if min(found) < 0:
        raise ValueError(f"there is no class {min(found)}; classes begin with 0")
    return tuple(found[number] for number in sorted(found))
