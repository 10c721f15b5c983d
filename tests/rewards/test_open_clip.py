"""Models of open_clip, tiny, with random weights, made here; what needs the library is skipped where it is not."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from robo_rl.errors import InvalidSetting, MissingExtra, RoboRLError
from robo_rl.rewards.conformance import check_image_text_model
from robo_rl.rewards.images.open_clip import OpenCLIP

CONFIG = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 16, "layers": 1, "width": 32, "patch_size": 8, "head_width": 16},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}
PICTURES = np.random.default_rng(0).integers(0, 256, (9, 20, 24, 3), np.uint8)
TEXTS = ("a robot kneels", "a red cube", "stands")


@pytest.fixture
def tiny(tmp_path) -> Path:
    """Weights of an architecture that the library knows from then on."""
    library = pytest.importorskip("open_clip", exc_type=ImportError)
    Path("configs").mkdir()
    Path("configs/tiny.json").write_text(json.dumps(CONFIG))
    library.add_model_config(Path("configs"))
    torch.manual_seed(0)
    weights = tmp_path / "weights.pt"
    torch.save(library.create_model("tiny").state_dict(), weights)
    return weights


class Double(torch.nn.Module):
    """What the library makes, as far as it is asked: two linear maps with random weights."""

    context_length = 16

    def __init__(self):
        super().__init__()
        self.visual, self.texts = torch.nn.Linear(3 * 8 * 8, 16), torch.nn.Embedding(128, 16)

    def encode_image(self, pixels):
        return self.visual(pixels.flatten(1))

    def encode_text(self, tokens):
        places = torch.arange(1, 1 + tokens.shape[1])[:, None]
        return (self.texts(tokens) * places * (tokens != 0)[..., None]).sum(1)


@pytest.fixture
def doubled(monkeypatch) -> None:
    """The library's double, which need not be installed."""
    torch.manual_seed(0)
    network = Double()

    def prepare(picture):
        return torch.from_numpy(np.array(picture.resize((8, 8)))).permute(2, 0, 1).float() / 255

    def tokenize(texts, context_length=16):
        rows = [[ord(letter) for letter in text[:context_length]] for text in texts]
        return torch.tensor([row + [0] * (context_length - len(row)) for row in rows])

    library = SimpleNamespace(
        create_model_and_transforms=lambda name, pretrained: (network, None, prepare), get_tokenizer=lambda name: tokenize
    )
    monkeypatch.setitem(sys.modules, "open_clip", library)


def test_it_keeps_the_rules_with_a_double_of_the_library(doubled):
    check_image_text_model(OpenCLIP("weights", "double", batch=4), PICTURES, TEXTS)
    with pytest.raises(InvalidSetting, match=r"cannot read so long a text: .*\n.*17 tokens\n.*16"):
        OpenCLIP("weights").embed_texts(["a" * 17])


def test_it_keeps_the_rules_of_image_text_models(tiny):
    check_image_text_model(OpenCLIP(str(tiny), "tiny", batch=4), PICTURES, TEXTS)


def test_the_identity_is_that_of_the_weights(tiny, tmp_path):
    first = OpenCLIP(str(tiny), "tiny").identity
    moved = tiny.rename(tmp_path / "moved.pt")
    assert first == OpenCLIP(str(moved), "tiny", batch=2).identity
    weights = torch.load(moved, weights_only=True)
    weights["logit_scale"] += 1
    torch.save(weights, moved)
    assert first != OpenCLIP(str(moved), "tiny").identity
    assert first[0] == "open_clip tiny"


def test_texts_are_never_cut_in_silence(tiny):
    model = OpenCLIP(str(tiny), "tiny")
    assert model.embed_texts(["a " * 14]).shape == (1, 16)
    with pytest.raises(InvalidSetting, match=r"cannot read so long a text: .*\n.*17 tokens\n.*16"):
        model.embed_texts(["a " * 15])


@pytest.mark.parametrize(("weights", "name"), [("/nowhere.pt", "tiny"), ("no-such-tag", "ViT-B-32"), ("x", "no-such-model")])
def test_what_is_not_there_is_one_error(tiny, weights, name):
    with pytest.raises(InvalidSetting, match=f"The model {name} of open_clip cannot be loaded with {weights}"):
        OpenCLIP(weights, name).embed_pictures(PICTURES)


def test_random_weights_are_refused():
    with pytest.raises(InvalidSetting, match=r"'pretrained' is out of range.\n.*\n.*weights would be random"):
        OpenCLIP("")


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "open_clip", None)
    with pytest.raises(MissingExtra, match=r"needs the package 'open_clip'.*\n.*robo-rl\[openclip\]"):
        OpenCLIP("x").embed_pictures(PICTURES)


@pytest.mark.parametrize(
    "raised", ["RuntimeError('operator torchvision::nms does not exist')", "ImportError('no torchvision')"]
)
def test_a_torchvision_for_another_torch_is_one_error(monkeypatch, tmp_path, raised):
    (tmp_path / "open_clip.py").write_text(f"raise {raised}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "open_clip", raising=False)
    with pytest.raises(RoboRLError, match=r"open_clip is installed, but cannot be imported.\n.*torchvision.*\n.*same index"):
        OpenCLIP("x").embed_pictures(PICTURES)
