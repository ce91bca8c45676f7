"""Kubernetes' rules for names, labels, taints, images and amounts; values are checked before a manifest is printed."""

import json
import re
from typing import Final

from eunomia.errors import InputError
from eunomia.model.shapes import value

LONGEST_LABEL: Final = 63
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_DNS: Final = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?\Z")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*\Z")
_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?\Z")
_KEY: Final = re.compile(
    r"(?:(?=.{1,253}/)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z"
)
_AMOUNT: Final = re.compile(r"([1-9][0-9]{0,11})(Ki|Mi|Gi|Ti)\Z")
_IMAGE: Final = re.compile(
    r"[a-z0-9][A-Za-z0-9._:/-]*?(?:(?<![:/]):(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127})|@sha256:[0-9a-f]{64})\Z"
)


@value
class Amount:
    """An amount of memory or disk in Kubernetes' form, such as ``64Gi``."""

    number: int
    unit: str

    def times(self, count: int) -> "Amount":
        """Return ``count`` times this amount."""
        return Amount(number=self.number * count, unit=self.unit)

    def __str__(self) -> str:
        return f"{self.number}{self.unit}"


@value
class Label:
    """A label of nodes: ``key=value``."""

    key: str
    value: str


@value
class Taint:
    """A taint of nodes that launchers tolerate; an empty value matches any value."""

    key: str
    value: str
    effect: str


def quoted(text: str) -> str:
    """Return a text in quotes for an error, on one line and truncated."""
    return json.dumps(text[:200], ensure_ascii=False)


def check_dns_label(text: str, place: str, *, longest: int = LONGEST_LABEL) -> str:
    """Check a name that becomes a part of a host name, and return it.

    Args:
        text: the name.
        place: the option with the name, for the error.
        longest: maximum number of characters, less than a DNS label's if a suffix follows.

    Raises:
        InputError: the name is not a DNS label (RFC 1035), or too long.
    """
    if not _DNS.match(text) or len(text) > longest:
        rule = f"a name in Kubernetes must be a DNS label: a-z, 0-9 and -, from a letter on, at most {longest} letters"
        raise InputError(rule, value=quoted(text), place=place)
    return text


def check_object_name(text: str, place: str) -> str:
    """Check the name of an existing object, such as a storage class, and return it.

    Raises:
        InputError: the name is not a DNS subdomain (RFC 1123).
    """
    if not _SUBDOMAIN.match(text) or len(text) > 253:
        rule = "the name of an object of Kubernetes must be a DNS subdomain: a-z, 0-9, - and dots"
        raise InputError(rule, value=quoted(text), place=place)
    return text


def label_of(text: str, place: str) -> Label:
    """Parse a label of the form ``KEY=VALUE``.

    Raises:
        InputError: the text has another form.
    """
    key, equals, label = text.partition("=")
    if not equals or not _KEY.match(key) or not _VALUE.match(label):
        rule = "a label of nodes must be KEY=VALUE by the rules of Kubernetes"
        raise InputError(rule, value=quoted(text), place=place)
    return Label(key=key, value=label)


def taint_of(text: str, place: str = "--taint") -> Taint:
    """Parse a taint of the form ``KEY[=VALUE][:EFFECT]``.

    Raises:
        InputError: the text has another form.
    """
    head, _, effect = text.partition(":")
    key, _, label = head.partition("=")
    effect = effect or EFFECTS[0]
    if not _KEY.match(key) or not _VALUE.match(label) or effect not in EFFECTS:
        rule = f"a taint must be KEY, KEY=VALUE or KEY=VALUE:EFFECT, with an effect of {', '.join(EFFECTS)}"
        raise InputError(rule, value=quoted(text), place=place)
    return Taint(key=key, value=label, effect=effect)


def amount_of(text: str, place: str) -> Amount:
    """Parse an amount of memory or disk such as ``64Gi``.

    Raises:
        InputError: the text has another form.
    """
    found = _AMOUNT.match(text)
    if found is None:
        rule = "an amount must be a whole number with a unit of Kubernetes (Ki, Mi, Gi, Ti), such as 64Gi"
        raise InputError(rule, value=quoted(text), place=place)
    return Amount(number=int(found[1]), unit=found[2])


def check_image(text: str, place: str = "--image") -> str:
    """Check the name of an image, and return it.

    Raises:
        InputError: it is not an image name, or has no fixed tag: arbiter and nodes must have one version.
    """
    found = _IMAGE.match(text)
    if found is None or found["tag"] == "latest":
        rule = (
            "an image must have a tag that stays (not latest) or a digest, since arbiter and nodes must be one version"
        )
        raise InputError(rule, value=quoted(text), place=place)
    return text
