"""A vision-language model of the library transformers, tiny, with random weights, made here: nothing is downloaded."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"  # read when the library is imported

from robo_rl.errors import InvalidSetting, MissingExtra
from robo_rl.rewards.chat.client import ModelClient
from robo_rl.rewards.chat.models import chat_model
from robo_rl.rewards.chat.question import Form, Question, form_in_words
from robo_rl.rewards.chat.transformers_chat import TransformersChat, choices_of
from robo_rl.rewards.judges.heads import ContrastForm, ProgressForm
from robo_rl.rewards.judges.rewards import JudgeProgress

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>", "<image>")
VOCABULARY = {word: number for number, word in enumerate([*SPECIAL, *map(chr, range(32, 127)), "\n"])}
SIZES = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
TALK = (
    "{% for message in messages %}{{ message['role'] }}: {% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}{% endfor %}\n{% endfor %}assistant: "
)
PICTURES = np.random.default_rng(0).integers(0, 256, (7, 20, 24, 3), np.uint8)


class Verdict(Form):
    done: Literal["yes", "no"]


def make_llava(folder: Path) -> None:
    letters = tokenizers.Tokenizer(tokenizers.models.WordLevel(VOCABULARY, unk_token="<unk>"))
    letters.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(r"[\s\S]"), "isolated")
    letters.decoder = tokenizers.decoders.Fuse()
    names = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>"}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=letters, extra_special_tokens={"image_token": "<image>"}, **names
    )
    words = {"num_key_value_heads": 2, "vocab_size": len(VOCABULARY), "max_position_embeddings": 2048}
    ends = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**SIZES, image_size=16, patch_size=8),
        text_config=transformers.LlamaConfig(**SIZES, **words, **ends),
        image_token_id=4,
        vision_feature_layer=-1,
    )
    pictures = transformers.CLIPImageProcessor(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16})
    facts = {"patch_size": 8, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
    transformers.LlavaForConditionalGeneration(config).save_pretrained(folder)
    transformers.LlavaProcessor(pictures, tokenizer, chat_template=TALK, **facts).save_pretrained(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    torch.manual_seed(0)
    made = tmp_path_factory.mktemp("llava")
    make_llava(made)
    return made


def answers(judge, *questions):
    return [answer for _, answer in sorted(judge.ask(questions), key=lambda each: each[0])]


@pytest.mark.slow
def test_the_likeliest_of_the_possible_answers_is_taken(folder):
    judge = TransformersChat(str(folder))
    asked = [Question(("Is it done?", picture), Verdict, "You judge.") for picture in PICTURES]
    model, processor = judge._parts
    for question, answer in zip(asked, answers(judge, *asked), strict=True):
        scores = {}
        for words in ('{"done": "yes"}', '{"done": "no"}'):
            talk = processor.apply_chat_template(
                [
                    {"role": "system", "content": [{"type": "text", "text": "You judge."}]},
                    {
                        "role": "user",
                        "content": [
                            {"type": "text", "text": "Is it done?"},
                            {"type": "image"},
                            {"type": "text", "text": form_in_words(question)},
                        ],
                    },
                ],
                tokenize=False,
            )
            inputs = processor(text=[talk + words], images=[question.parts[1]], return_tensors="pt")
            with torch.no_grad():
                chances = model(**inputs).logits[0].log_softmax(-1)
            ids = inputs["input_ids"][0]
            scores[words] = sum(float(chances[at - 1, ids[at]]) for at in range(len(ids) - len(words), len(ids)))
        assert answer.text == max(scores, key=scores.get) and answer.status == "ok"
        assert abs(scores['{"done": "yes"}'] - scores['{"done": "no"}']) > 1e-3


@pytest.mark.slow
def test_pictures_count_and_answers_repeat(folder):
    judge = TransformersChat(str(folder))
    inputs = [judge._inputs(Question(("a", picture), Verdict)) for picture in PICTURES[:2]]
    words = '{"done": "yes"}'
    with torch.inference_mode():
        one, other = (judge._likelihood(each, words) for each in inputs)
    assert one != other
    asked = [Question(("a", picture), ProgressForm) for picture in PICTURES]
    assert answers(judge, *asked) == answers(TransformersChat(str(folder)), *asked)


def test_words_are_spoken_and_may_be_cut(folder):
    judge = TransformersChat(str(folder), max_tokens=5)
    (cut,) = answers(judge, Question(("What is this?", PICTURES[0], PICTURES[1])))
    assert (cut.status, cut.completion_tokens) == ("cut", 5) and cut.text
    model, processor = judge._parts
    last = processor.tokenizer(cut.text[-1], add_special_tokens=False)["input_ids"][0]
    model.generation_config.eos_token_id = [last]
    (said,) = answers(judge, Question(("What is this?", PICTURES[0], PICTURES[1])))
    assert said.status == "ok" and cut.text.startswith(said.text)
    (words,) = answers(judge, Question(("No picture.",), ContrastForm))
    assert words.status in ("ok", "cut"), "several fields are spoken"


def test_which_answers_are_possible():
    assert choices_of(Question(("",), Verdict)) == ['{"done": "yes"}', '{"done": "no"}']
    assert choices_of(Question(("",), ProgressForm))[3] == '{"completion_progress": 0.3}'
    assert not choices_of(Question(("",))) and not choices_of(Question(("",), ContrastForm))


@pytest.mark.slow
def test_a_reward_asks_it(folder):
    reward = JudgeProgress(judge="transformers-chat", judge_settings={"model": str(folder)})
    scores = reward.score(PICTURES, np.broadcast_to(PICTURES[:1], PICTURES.shape), "go")
    assert scores.valid.all() and ((scores.values * 10) % 1 < 1e-5).sum() + ((scores.values * 10) % 1 > 1 - 1e-5).sum() == 7
    asked = reward.asking._asked
    reward.score(PICTURES, np.broadcast_to(PICTURES[:1], PICTURES.shape), "go")
    assert reward.asking._asked == asked == 7 and reward.identity[0] == "judge-progress by transformers-chat llava"


def test_the_same_files_are_the_same_judge(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    assert TransformersChat(str(copy)).identity == TransformersChat(str(folder), device="cuda").identity
    assert TransformersChat(str(copy)).identity != TransformersChat(str(copy), max_tokens=9).identity
    (copy / "chat_template.jinja").write_text(TALK + " ")
    assert TransformersChat(str(copy)).identity != TransformersChat(str(folder)).identity


@pytest.mark.slow
def test_what_cannot_be_used_is_one_error(folder, tmp_path, monkeypatch):
    for settings, message in (({}, "a folder or a name"), ({"model": "x", "dtype": "int8"}, "float32, bfloat16")):
        with pytest.raises(InvalidSetting, match=message):
            ModelClient(chat_model("transformers-chat", settings))
    with pytest.raises(InvalidSetting, match="no vision-language model 'someone/no-such', and it cannot be downloaded"):
        TransformersChat("someone/no-such").identity  # noqa: B018
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "config.json").write_text(json.dumps({"model_type": "clip"}))
    with pytest.raises(InvalidSetting, match=r"The vision-language model .*copy cannot be loaded.\n(.*\n)*.*torchvision"):
        ModelClient(TransformersChat(str(copy))).ask([Question(("a",), Verdict)])
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r"robo-rl\[hf\]"):
        TransformersChat(str(folder))._parts  # noqa: B018


def test_a_conversation_and_samples(folder):
    judge = TransformersChat(str(folder), max_tokens=12)
    asked = [Question(("Go on.",), None, "You talk.", [("user", "a"), ("assistant", "b")], 1.5, sample) for sample in (0, 1)]
    first, second, again = answers(judge, *asked, asked[0])
    assert first.text == again.text != second.text, "a sample repeats, and no other one is like it"
    letters = judge._inputs(asked[0])["input_ids"][0]
    talk = judge._parts[1].tokenizer.decode(letters)
    assert talk.endswith("system: You talk.user: aassistant: buser: Go on.assistant: ")
    (choice,) = answers(judge, Question(("Is it done?",), Verdict, temperature=1.5, sample=0))
    assert "done" not in choice.text, "it talks where samples are wanted"
