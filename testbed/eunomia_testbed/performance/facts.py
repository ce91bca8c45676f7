"""Public facts on models and GPU types for the analytic model, each with its source.

Rates are those of one reference GPU, for computing alone; if none is published, ``source`` says that it is assumed.
Abbreviations of the sources:

- TF: TensorFlow's benchmarks of May 2017 (tensorflow.org/performance/benchmarks), one GPU, real data.
- AFS: seconds per step of the authors' published history, on the GTX 1080 of their §5.1. The times on one and four GPUs
  of a machine, T1 and T4, give the part that does not shrink with more GPUs, (4 T4 - T1) / 3, and the rate of the rest.
- Synergy: iteration times and sensitivity of its published profiles, V100.
- tv: parameters and FLOPs of torchvision's models.
"""

from collections.abc import Mapping
from typing import Final

from eunomia.model.shapes import value


@value
class ModelFacts:
    """Inputs of the analytic model for one model."""

    parameters_millions: float
    batch_size: float
    """Global batch size of an iteration, in items."""
    items_per_second: float
    """Items (images, sentences, tokens ...) that one GPU of the reference type computes per second."""
    gpu_type: str
    """The reference GPU type."""
    source: str
    """Sources of the number of parameters, and of batch size and rate."""
    cpu_seconds_per_item: float = 0.0
    """CPU time to load and prepare an item, in seconds; 0: negligible."""
    fixed_seconds: float = 0.0
    """Seconds of a step on the reference type that do not depend on the batch size; 0: not measured."""


JPEG_SECONDS: Final = 0.0036
"""CPU seconds to decode and crop an ImageNet image: Synergy's AlexNet, ResNet-18 and ShuffleNet take 0.60 to 0.64 s for
512 images with 3 CPUs, where CPUs are the bottleneck."""
AUDIO_SECONDS: Final = 0.0035
"""CPU seconds per audio clip: Synergy's M5 takes 0.6 s for 512 clips with 3 CPUs."""

MODELS: Final[Mapping[str, ModelFacts]] = {
    "VGG16": ModelFacts(
        parameters_millions=138.36,
        batch_size=128,
        items_per_second=25.9,
        gpu_type="P100",
        source="tv; Themis Table 1: 103.6 images/s on four GPUs of one server",
        cpu_seconds_per_item=JPEG_SECONDS,
    ),
    "Inception-v3": ModelFacts(
        parameters_millions=23.83,
        batch_size=128,
        items_per_second=60.5,
        gpu_type="P100",
        source="tv, without the auxiliary head; Themis Table 1: 242 images/s on four GPUs of one server",
        cpu_seconds_per_item=JPEG_SECONDS,
    ),
    "VGG19": ModelFacts(
        parameters_millions=143.67,
        batch_size=128,
        items_per_second=20.4,
        gpu_type="P100",
        source="tv; VGG16's rate times 15.47 / 19.63 GFLOPs (tv)",
        cpu_seconds_per_item=JPEG_SECONDS,
    ),
    "AlexNet": ModelFacts(
        parameters_millions=61.10,
        batch_size=512,
        items_per_second=2890.0,
        gpu_type="P100",
        source="tv; TF",
        cpu_seconds_per_item=JPEG_SECONDS,
    ),
    "ResNet-50": ModelFacts(
        parameters_millions=25.56,
        batch_size=128,
        items_per_second=233.0,
        gpu_type="P100",
        source="tv; TF: 64 images at 218 a second; AFS' fixed part and batch, times 0.59",
        cpu_seconds_per_item=JPEG_SECONDS,
        fixed_seconds=0.019,
    ),
    "ResNet-18": ModelFacts(
        parameters_millions=11.69,
        batch_size=512,
        items_per_second=1920.0,
        gpu_type="V100",
        source="tv; Synergy: 512 images in 0.64 s, 2.4 times faster with CPUs enough",
        cpu_seconds_per_item=JPEG_SECONDS,
    ),
    "MobileNetV2": ModelFacts(
        parameters_millions=3.50,
        batch_size=512,
        items_per_second=1118.0,
        gpu_type="V100",
        source="tv; Synergy: 512 images in 0.71 s, 1.55 times faster with CPUs enough",
        cpu_seconds_per_item=JPEG_SECONDS,
    ),
    "ShuffleNetV2": ModelFacts(
        parameters_millions=2.28,
        batch_size=512,
        items_per_second=2406.0,
        gpu_type="V100",
        source="tv; Synergy: 512 images in 0.615 s, 2.89 times faster with CPUs enough",
        cpu_seconds_per_item=JPEG_SECONDS,
    ),
    "GoogLeNet": ModelFacts(
        parameters_millions=6.62,
        batch_size=128,
        items_per_second=398.7,
        gpu_type="GTX 1080",
        source="tv; AFS",
        cpu_seconds_per_item=JPEG_SECONDS,
        fixed_seconds=0.0259,
    ),
    "Inception-v4": ModelFacts(
        parameters_millions=42.7,
        batch_size=256,
        items_per_second=44.0,
        gpu_type="GTX 1080",
        source="Szegedy et al. 2016; AFS",
        cpu_seconds_per_item=JPEG_SECONDS,
        fixed_seconds=0.0134,
    ),
    "DenseNet": ModelFacts(
        parameters_millions=7.98,
        batch_size=128,
        items_per_second=310.0,
        gpu_type="P100",
        source="tv, DenseNet-121; assumed: ResNet-50's rate times 4.13 / 2.90 GFLOPs (tv)",
        cpu_seconds_per_item=JPEG_SECONDS,
    ),
    "DCGAN": ModelFacts(
        parameters_millions=6.3,
        batch_size=256,
        items_per_second=996.0,
        gpu_type="GTX 1080",
        source="PyTorch's DCGAN tutorial, generator 3.6 and discriminator 2.8; AFS",
        fixed_seconds=0.025,
    ),
    "Video Prediction": ModelFacts(
        parameters_millions=12.6,
        batch_size=64,
        items_per_second=64.6,
        gpu_type="GTX 1080",
        source="assumed; AFS",
        fixed_seconds=0.132,
    ),
    "Bi-Att-Flow": ModelFacts(
        parameters_millions=2.6,
        batch_size=60,
        items_per_second=14.6,
        gpu_type="Titan X",
        source="Seo et al. 2017; the same: 12 epochs of 87,599 questions in about 20 hours",
    ),
    "LangModel": ModelFacts(
        parameters_millions=66.0,
        batch_size=20,
        items_per_second=16.9,
        gpu_type="K20",
        source="Zaremba et al. 2014, large; the same: 55 epochs of 929k words, 35 an item, in about a day",
    ),
    "GNMT": ModelFacts(
        parameters_millions=160.0,
        batch_size=128,
        items_per_second=1067.0,
        gpu_type="V100",
        source="counted from the layers of NVIDIA's GNMT v2 (4 + 4 of 1,024; 32k word pieces); Synergy",
    ),
    "Transformer": ModelFacts(
        parameters_millions=65.0,
        batch_size=25_000,
        items_per_second=7812.0,
        gpu_type="P100",
        source="Vaswani et al. 2017, base; the same, §5: 25,000 source tokens in 0.4 s on eight GPUs",
    ),
    "Transformer (IWSLT)": ModelFacts(
        parameters_millions=65.0,
        batch_size=256,
        items_per_second=97.6,
        gpu_type="GTX 1080",
        source="Vaswani et al. 2017, base; AFS",
        fixed_seconds=0.153,
    ),
    "Transformer-XL": ModelFacts(
        parameters_millions=151.0,
        batch_size=128,
        items_per_second=191.0,
        gpu_type="V100",
        source="Dai et al. 2019, base for WikiText-103; Synergy",
    ),
    "LSTM": ModelFacts(
        parameters_millions=14.0,
        batch_size=20,
        items_per_second=1818.0,
        gpu_type="V100",
        source="PyTorch's word_language_model, two layers of 200, 33,278 words; Synergy",
    ),
    "RNN": ModelFacts(
        parameters_millions=13.5,
        batch_size=20,
        items_per_second=3600.0,
        gpu_type="V100",
        source="as LSTM with plain cells; assumed: twice LSTM's rate",
    ),
    "Chatbot": ModelFacts(
        parameters_millions=18.0,
        batch_size=256,
        items_per_second=3981.0,
        gpu_type="GTX 1080",
        source="assumed: what AFS' time on eight GPUs implies; AFS",
        fixed_seconds=0.05,
    ),
    "DeepSpeech": ModelFacts(
        parameters_millions=47.2,
        batch_size=64,
        items_per_second=182.0,
        gpu_type="GTX 1080",
        source="Mozilla's released model of 188.9 MB; assumed as fast as Deep Speech 2 (AFS)",
        fixed_seconds=0.268,
    ),
    "Deep Speech 2": ModelFacts(
        parameters_millions=38.0,
        batch_size=64,
        items_per_second=182.0,
        gpu_type="GTX 1080",
        source="Amodei et al. 2016; AFS",
        fixed_seconds=0.268,
    ),
    "WaveNet": ModelFacts(
        parameters_millions=1.5,
        batch_size=4,
        items_per_second=2.0,
        gpu_type="P100",
        source="counted from the layers of ibab/tensorflow-wavenet's defaults; assumed",
    ),
    "M5": ModelFacts(
        parameters_millions=0.5,
        batch_size=512,
        items_per_second=2133.0,
        gpu_type="V100",
        source="Dai et al. 2017; Synergy: 512 clips in 0.6 s, 2.5 times faster with CPUs enough",
        cpu_seconds_per_item=AUDIO_SECONDS,
    ),
}

ALIASES: Final[Mapping[str, str]] = {
    # Synergy's profiles
    "alexnet": "AlexNet",
    "res18": "ResNet-18",
    "res50": "ResNet-50",
    "mobilenet": "MobileNetV2",
    "shufflenet": "ShuffleNetV2",
    "gnmt": "GNMT",
    "lstm": "LSTM",
    "transformer": "Transformer-XL",
    "m5": "M5",
    "deepspeech": "Deep Speech 2",
    # AFS' step times
    "VggnetModel256": "VGG16",
    "GooglenetModel128": "GoogLeNet",
    "Inception4Model256": "Inception-v4",
    "Resnet50Model128": "ResNet-50",
    "DcganModel256": "DCGAN",
    "VideopredictionModel64": "Video Prediction",
    "ChatbotModel256": "Chatbot",
    "DeepspeechModel64": "Deep Speech 2",
    "TransformerModel256": "Transformer (IWSLT)",
    # Themis' Table 4, Gavel, OEF
    "ResNet50": "ResNet-50",
    "LM": "LSTM",
    "VGG": "VGG16",
    "ResNet": "ResNet-50",
}
"""Other names of models that workloads use."""

GPU_SPEED: Final[Mapping[str, tuple[float, str]]] = {
    "K20": (0.18, "K80's, times 3.52 / 4.37 TFLOPS of single precision (NVIDIA's data sheets)"),
    "K80": (0.225, "TF: 30.6, 51.2, 639 and 34.2 images/s against the P100's 142, 218, 2890 and 154"),
    "GTX 1080": (0.59, "AFS' VGG16 and ResNet-50, 84.8 and 136 images/s, against the P100's 154 and 218 (TF)"),
    "Titan X": (0.44, "GTX 1080's, times 6.6 / 8.9 TFLOPS of single precision (NVIDIA's data sheets)"),
    "P100": (1.0, "the yardstick"),
    "V100": (1.48, "15.7 / 10.6 TFLOPS of single precision (NVIDIA's data sheets)"),
    "A100": (1.84, "19.5 / 10.6 TFLOPS of single precision (NVIDIA's data sheets), tensor cores left out"),
    "T4": (0.76, "8.1 / 10.6 TFLOPS of single precision (NVIDIA's data sheets)"),
    "A10": (0.82, "600 / 732 GB/s of memory (NVIDIA's data sheets)"),
    "RTX 3070": (0.61, "448 / 732 GB/s of memory (NVIDIA's data sheets)"),
    "RTX 3080": (1.04, "760 / 732 GB/s of memory (NVIDIA's data sheets)"),
    "RTX 3090": (1.28, "936 / 732 GB/s of memory (NVIDIA's data sheets)"),
}
"""Speed of each GPU type relative to the P100, and its source."""
