"""CLIP and SigLIP of the library transformers, tiny, with random weights, made here: nothing is downloaded."""

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"  # read when the library is imported

from robo_rl.errors import InvalidSetting, MissingExtra
from robo_rl.rewards.conformance.image_text import IMAGE_TEXT_CHECKS
from robo_rl.rewards.images.hugging_face import HuggingFace
from robo_rl.rewards.images.vlm_rm import VLMRM

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

WORDS = ("<pad>", "<bos>", "<eos>", "<unk>", "a", "robot", "kneels", "stands", "red", "green", "cube")
VOCABULARY = {word: number for number, word in enumerate(WORDS)}
SIZES = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
SPECIAL = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
TEXT = SIZES | SPECIAL | {"vocab_size": len(WORDS), "max_position_embeddings": 8}
VISION = SIZES | {"image_size": 16, "patch_size": 8}
SQUARE = {"height": 16, "width": 16}
PICTURES = np.random.default_rng(0).integers(0, 256, (9, 20, 24, 3), np.uint8)
TEXTS = ("a robot kneels", "a red cube", "stands")


def tokenizer(inputs: list[str]):
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(VOCABULARY, unk_token="<unk>"))
    words.normalizer = tokenizers.normalizers.Lowercase()
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    ends = [("<bos>", 1), ("<eos>", 2)]
    words.post_processor = tokenizers.processors.TemplateProcessing(single="<bos> $A <eos>", special_tokens=ends)
    names = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, model_input_names=inputs, **names)


def make_clip(folder: Path) -> None:
    config = transformers.CLIPConfig(text_config=TEXT, vision_config=VISION, projection_dim=16)
    transformers.CLIPModel(config).save_pretrained(folder)
    pictures = transformers.CLIPImageProcessor(size={"shortest_edge": 16}, crop_size=SQUARE)
    transformers.CLIPProcessor(pictures, tokenizer(["input_ids", "attention_mask"])).save_pretrained(folder)


def make_siglip(folder: Path) -> None:
    config = transformers.SiglipConfig(text_config=TEXT, vision_config=VISION)
    transformers.SiglipModel(config).save_pretrained(folder)
    pictures = transformers.SiglipImageProcessor(size=SQUARE)
    transformers.SiglipProcessor(pictures, tokenizer(["input_ids"])).save_pretrained(folder)


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    torch.manual_seed(0)
    made = {name: tmp_path_factory.mktemp(name) for name in ("clip", "siglip")}
    make_clip(made["clip"])
    make_siglip(made["siglip"])
    return made


@pytest.fixture
def clip(folders, tmp_path) -> Path:
    """A copy that may be broken."""
    return shutil.copytree(folders["clip"], tmp_path / "copy")


@pytest.mark.parametrize("check", IMAGE_TEXT_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_it_keeps_the_rules_of_image_text_models(folders, name, check):
    check(HuggingFace(str(folders[name]), batch=4), PICTURES, TEXTS)


def test_vectors_are_those_of_the_library(folders):
    model = transformers.CLIPModel.from_pretrained(folders["clip"])
    processor = transformers.CLIPProcessor.from_pretrained(folders["clip"])
    with torch.inference_mode():
        inputs = processor(text=list(TEXTS), images=list(PICTURES), return_tensors="pt", padding=True)
        expected = model(**inputs)
    ours = HuggingFace(str(folders["clip"]))
    np.testing.assert_allclose(ours.embed_pictures(PICTURES), expected.image_embeds.numpy(), atol=1e-6)
    np.testing.assert_allclose(ours.embed_texts(TEXTS), expected.text_embeds.numpy(), atol=1e-6)


def test_tensors_of_library_before_version_5_are_read(folders, monkeypatch):
    model = HuggingFace(str(folders["clip"]))
    expected = model.embed_pictures(PICTURES)
    inner, _ = model._parts
    now = inner.get_image_features
    monkeypatch.setattr(inner, "get_image_features", lambda **inputs: getattr(found := now(**inputs), "pooler_output", found))
    np.testing.assert_array_equal(model.embed_pictures(PICTURES), expected)


def test_the_identity_is_that_of_the_files_wherever_they_lie(folders, clip):
    assert HuggingFace(str(clip)).identity == HuggingFace(str(folders["clip"]), batch=2).identity
    assert HuggingFace(str(clip)).identity[0] == "transformers clip"
    (clip / "README.md").write_text("about")
    assert HuggingFace(str(clip)).identity == HuggingFace(str(folders["clip"])).identity
    (preparation,) = clip.glob("*processor_config.json")
    preparation.write_text(preparation.read_text().replace('"image_mean": [', '"image_mean": [ '))
    assert HuggingFace(str(clip)).identity != HuggingFace(str(folders["clip"])).identity


def test_it_serves_a_reward(folders):
    settings = {"model": str(folders["clip"])}
    reward = VLMRM(model="transformers", model_settings=settings, goal=("a robot kneels",), baseline=("a robot",))
    found = reward.score(PICTURES, PICTURES, None)
    assert found.valid.all() and len({*found.values.tolist()}) == len(PICTURES)
    assert reward.identity[0] == "vlm-rm with transformers clip"


@pytest.mark.slow
def test_a_name_of_the_hub_is_taken_from_what_was_downloaded(folders, tmp_path, monkeypatch):
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    commit = "0123456789abcdef0123456789abcdef01234567"
    shutil.copytree(folders["clip"], tmp_path / "models--someone--tiny-clip" / "snapshots" / commit)
    (tmp_path / "models--someone--tiny-clip" / "refs").mkdir()
    (tmp_path / "models--someone--tiny-clip" / "refs" / "main").write_text(commit)
    for revision in ("main", commit):
        assert HuggingFace("someone/tiny-clip", revision).identity == HuggingFace(str(folders["clip"])).identity
    assert HuggingFace("someone/tiny-clip").embed_pictures(PICTURES[:1]).shape == (1, 16)
    with pytest.raises(InvalidSetting, match="no image-text model 'someone/tiny-clip', and it cannot be downloaded"):
        _ = HuggingFace("someone/tiny-clip", "another").identity


@pytest.mark.parametrize("name", ["someone/else", "no/such/folder", "/nowhere", "not a name"])
def test_without_folder_and_network_one_error_says_so(name, tmp_path, monkeypatch):
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(InvalidSetting, match=rf"There is no image-text model '{name}', and it cannot be downloaded") as caught:
        HuggingFace(name).embed_texts(["a robot"])
    assert "download it once where there is a network" in str(caught.value)


def test_words_that_it_does_not_know_are_refused(folders):
    model = HuggingFace(str(folders["siglip"]))
    with pytest.raises(InvalidSetting, match=r"does not know all words of 'a purple robot'.\n.*purple$"):
        model.embed_texts(["a robot", "a purple robot"])
    with pytest.raises(InvalidSetting, match=r"cannot read so long a text: .*\n.*9 tokens\n.*8"):
        model.embed_texts(["a a a a a a a"])
    assert model.embed_texts(["a a a a a a"]).shape == (1, 32)


def test_weights_that_are_missing_are_never_random(clip):
    from safetensors.torch import load_file, save_file

    weights = load_file(clip / "model.safetensors")
    del weights["visual_projection.weight"]
    save_file(weights, clip / "model.safetensors", {"format": "pt"})
    with pytest.raises(InvalidSetting, match=r"Weights of .* are missing.\n.*visual_projection.weight"):
        HuggingFace(str(clip)).embed_pictures(PICTURES)


def damage_weights(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\x00" * 100)


def name_another_kind(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "nothing"}))


@pytest.mark.parametrize(
    "damage", [damage_weights, name_another_kind, lambda folder: (folder / "model.safetensors").rename(folder / "model.bin")]
)
def test_a_damaged_folder_is_one_error(clip, damage):
    damage(clip)
    with pytest.raises(InvalidSetting, match=r"The image-text model .*copy cannot be loaded.\n  got: .*\n  allowed: a folder"):
        HuggingFace(str(clip)).embed_pictures(PICTURES)


def test_a_device_that_is_not_there_is_refused(folders):
    with pytest.raises(InvalidSetting, match=r"The device cannot be used.\n.*abacus"):
        HuggingFace(str(folders["clip"]), device="abacus").embed_pictures(PICTURES)
    with pytest.raises(InvalidSetting, match="'batch' is out of range"):
        HuggingFace("x", batch=0)


def test_without_the_library_the_extra_is_named(folders, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r"needs the package 'transformers'.*\n.*robo-rl\[hf\]"):
        HuggingFace(str(folders["clip"])).embed_pictures(PICTURES)
