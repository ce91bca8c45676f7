"""Chooses the program that is trained in place of a trace's model, and the batch size of that program.

A match is exact if the program is the model's kind of network, if smaller. Otherwise the program is a stand-in, with
the reason for its choice. This module needs no torch.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia_testbed.generators.job_types import GAVEL, SHOCKWAVE
from eunomia_testbed.performance.facts import ALIASES
from eunomia_testbed.performance.reading import plain
from eunomia_testbed.workload.adaptation import LARGEST_BATCH, split_model
from eunomia_testbed.workloads.programs import Program, program_named

UNKNOWN: Final = "resnet"
"""The program for models that the table lacks, and for jobs without a model."""

EXACT: Final[Mapping[str, str]] = {
    "ResNet-18": "resnet",
    "ResNet-50": "resnet",
    "VGG16": "vgg",
    "VGG19": "vgg",
    "MobileNetV2": "mobilenet",
    "CNN": "cnn",
    "MLP": "mlp",
    "ViT": "vit",
    "LSTM": "lstm",
    "LangModel": "lstm",
    "GNMT": "seq2seq",
    "Transformer": "transformer",
    "Transformer (IWSLT)": "transformer",
    "M5": "m5",
    "Recommendation": "autoencoder",
    "Autoencoder": "autoencoder",
}
"""Exact matches: the program for each model of the same kind of network."""

STAND_INS: Final[Mapping[str, tuple[str, str]]] = {
    "AlexNet": ("cnn", "convolutions and dense layers after each other, with fewer of both"),
    "Inception-v3": ("resnet", "a deep convolutional network with batch norm; its blocks do not branch"),
    "Inception-v4": ("resnet", "a deep convolutional network with batch norm; its blocks do not branch"),
    "GoogLeNet": ("resnet", "a deep convolutional network; its blocks do not branch"),
    "DenseNet": ("resnet", "a deep convolutional network with shortcuts, which are added, not concatenated"),
    "ShuffleNetV2": ("mobilenet", "depthwise convolutions between pointwise ones, without shuffled channels"),
    "YOLOv3": ("resnet", "Darknet-53, its trunk, is a residual network; it detects no objects"),
    "CycleGAN": ("resnet", "its generators are residual networks; no second network competes"),
    "DCGAN": ("vgg", "convolutions after each other; no second network competes"),
    "Video Prediction": ("resnet", "a convolutional network on images; it has no recurrent layers"),
    "A3C": ("mlp", "a small network with short iterations; it trains on images, not by reinforcement"),
    "RNN": ("lstm", "a recurrent language model, with cells that have gates"),
    "Bi-Att-Flow": ("seq2seq", "recurrent encoders; it answers no questions"),
    "Chatbot": ("seq2seq", "answers a sequence by a sequence"),
    "Transformer-XL": ("transformer", "the same layers, without recurrence over segments"),
    "BERT": ("transformer", "the same layers, with a decoder, and trained from scratch"),
    "GPT-2": ("transformer", "the same layers, with an encoder"),
    "DeepSpeech": ("m5", "speech by convolutions instead of recurrent layers; it names words, not letters"),
    "Deep Speech 2": ("m5", "speech by convolutions; without recurrent layers; it names words, not letters"),
    "WaveNet": ("m5", "convolutions over the waveform, with strides instead of dilation"),
    "NCF": ("autoencoder", "recommendations from ratings, by users' rows instead of pairs"),
    "VAE": ("autoencoder", "an autoencoder without random codes"),
}
"""Stand-ins for models without an exact match: the program, and how it resembles and differs from the model."""

OTHER_NAMES: Final[Mapping[str, str]] = {
    **ALIASES,
    # Gavel's language model, and Pollux' applications, by their data or library
    "LM": "LSTM",
    "cifar10": "ResNet-18",
    "imagenet": "ResNet-50",
    # ElasticFlow's profiles
    "inception3": "Inception-v3",
    "resnet50_cifar10": "ResNet-50",
    # AFS' step times of models that its traces leave out
    "AutoencoderModel51200": "Autoencoder",
    "TransformerModel4096": "Transformer (IWSLT)",
}
"""Other names of models, as used in traces and profiles."""


@value
class ScaledBatch:
    """The batch size of a program, derived from that of a model."""

    size: int
    divisor: int
    """The power of two by which the model's batch sizes are divided."""
    rule: str
    """The rule that gave the size, for reports."""


@value
class Match:
    """A model of a trace, and the program that is trained in its place."""

    model: str
    """The name in the trace; empty: none."""
    program: Program
    is_stand_in: bool
    why: str
    """For a stand-in, how it resembles and differs from the model; otherwise empty."""
    largest_known: int
    """The largest batch size of the model in published job types; 0: none is known."""

    def batch(self, given: float | None = None) -> ScaledBatch:
        """Return the program's batch size for a batch size of the model.

        The model's batch sizes are divided by the smallest power of two that brings the largest known one down to the
        program's largest, so that the batch sizes of an adapting job keep their ratios.

        Args:
            given: global batch size in the trace; None: the one in the model's name, if there is one.
        """
        named = split_model(self.model)[1]
        size = round(given if given is not None else named or 0)
        if size < 1:
            return ScaledBatch(size=self.program.batch_size, divisor=1, rule="the program's own: the trace has none")
        divisor = 1
        while max(size, self.largest_known) / divisor > self.program.largest_batch:
            divisor *= 2
        scaled = max(size // divisor, 1)
        rule = "the trace's" if divisor == 1 else f"the trace's, divided by {divisor}"
        if scaled < self.program.smallest_batch:
            least = self.program.smallest_batch
            return ScaledBatch(size=least, divisor=divisor, rule=f"{rule}, raised to the program's least")
        return ScaledBatch(size=scaled, divisor=divisor, rule=rule)

    def largest_batch(self, given: float | None = None) -> int | None:
        """Return the largest batch size, scaled to the program, to which a job adapts; None: the model does not adapt.

        Args:
            given: global batch size in the trace, as for ``batch``.
        """
        largest = LARGEST_BATCH.get(split_model(self.model)[0])
        if largest is None:
            return None
        return max(largest // self.batch(given).divisor, self.program.smallest_batch)


def program_for(model: str) -> Match:
    """Return the program that is trained in place of a model.

    Args:
        model: the name in a trace, with or without a batch size, in any spelling; empty: the trace names none.
    """
    canonical = _canonical(model)
    if canonical in EXACT:
        return _match(model, EXACT[canonical], None)
    if canonical in STAND_INS:
        return _match(model, *STAND_INS[canonical])
    why = "no program is known to be like it" if model else "the trace names no model"
    return _match(model, UNKNOWN, why)


def programs_of(models: Iterable[str], *, stand_ins: bool = True, place: str = "") -> tuple[Match, ...]:
    """Return the matches of a trace's models, in order.

    Args:
        models: the names in the trace.
        stand_ins: whether a program may stand in for a model of another kind.
        place: the origin of the names, for errors.

    Raises:
        InputError: stand-ins are forbidden, and no program is of the kind of a model; all such models are named.
    """
    matches = tuple(program_for(model) for model in models)
    lacking = list(dict.fromkeys(match.model or "no model" for match in matches if match.is_stand_in))
    if lacking and not stand_ins:
        rule = "each model must have a program of its own kind, since stand-ins are forbidden"
        raise InputError(rule, value=", ".join(lacking), place=place)
    return matches


def table() -> tuple[Match, ...]:
    """Return the match of each model that is known: first the exact ones, then the stand-ins."""
    return tuple(program_for(model) for model in (*EXACT, *STAND_INS))


def _match(model: str, program: str, why: str | None) -> Match:
    family = plain(split_model(model)[0])
    return Match(
        model=model,
        program=program_named(program),
        is_stand_in=why is not None,
        why=why or "",
        largest_known=_LARGEST.get(family, 0),
    )


def _canonical(model: str) -> str:
    """Return a model's name in the table; empty: none. Synergy's ``transformer`` is not ``Transformer``."""
    family = split_model(model)[0]
    return OTHER_NAMES.get(family) or _PLAIN.get(plain(family), "")


_PLAIN: Final = {
    **{plain(other): name for other, name in OTHER_NAMES.items()},
    **{plain(name): name for name in (*EXACT, *STAND_INS)},
}
_LARGEST: Final = {
    plain(kind.family): max(each.batch_size or 0 for each in (*GAVEL, *SHOCKWAVE) if each.family == kind.family)
    for kind in (*GAVEL, *SHOCKWAVE)
}
