"""The judge `transformers-chat`: a vision-language model of the library transformers in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from robo_rl.errors import require_allowed
from robo_rl.rewards.chat.models import Terms
from robo_rl.rewards.chat.question import Answer, Question, choices_of, form_in_words
from robo_rl.rewards.identity import hash_of
from robo_rl.rewards.images.local_models import hub_folder, identity_of, loaded, loaded_model, on_device

KIND = "vision-language model"
FORMAT = 1
"""Version of the conversation's layout, which is part of the model's identity."""
FIX = "some processors, such as Qwen-VL's, need torchvision for the very version of torch; most do without it"


@dataclass(frozen=True)
class TransformersChat:
    """Judge that is a vision-language model such as LLaVA or Qwen-VL, run in this process (extra `hf`).

    A question with few possible answers, if it is not sampled, is answered by computing the likelihood of each and taking the
    likeliest.
    """

    model: str = ""
    """Folder that `save_pretrained` wrote, or name on huggingface.co, which is downloaded once."""
    revision: str = "main"
    """Branch, tag or commit, for a name on huggingface.co."""
    device: str = "cpu"
    """Device by torch's name: cpu, cuda, cuda:1, mps. It is not part of the identity."""
    dtype: str = "float32"
    """Type of the weights and activations: float32, bfloat16, float16."""
    max_tokens: int = 512
    """Largest number of tokens of a free answer, 1 or more; a longer one is cut and counts as missing."""
    terms: Terms = field(default_factory=Terms)
    """Store of answers, and a budget of tokens."""

    def __post_init__(self) -> None:
        kinds = ("float32", "bfloat16", "float16")
        allowed = {"model": (bool(self.model), "a folder or a name"), "dtype": (self.dtype in kinds, ", ".join(kinds))}
        require_allowed(self, allowed | {"max_tokens": (self.max_tokens >= 1, "1 or more")})

    @cached_property
    def identity(self) -> tuple[str, str]:
        """Kind of the model, and a hash of its files and of the settings that its answers depend on."""
        kind, files = identity_of(self._folder)
        return f"transformers-chat {kind}", hash_of(f"{FORMAT} {files} {self.dtype} {self.max_tokens}".encode())

    def ask(self, questions: Iterable[Question]) -> Iterator[tuple[int, Answer]]:
        """Yield (number of the question, answer), one after the other."""
        for number, question in enumerate(questions):
            with torch.inference_mode():
                yield number, self._answer(question)

    def _answer(self, question: Question) -> Answer:
        inputs = self._inputs(question)
        asked, named = inputs["input_ids"].shape[1], self.identity[1]
        if not question.temperature and (choices := choices_of(question)):
            likeliest = max(choices, key=lambda words: self._likelihood(inputs, words))
            return Answer("ok", text=likeliest, model=named, prompt_tokens=asked, completion_tokens=len(choices))
        model, processor = self._parts
        sampling = {"do_sample": True, "temperature": question.temperature} if question.temperature else {"do_sample": False}
        with torch.random.fork_rng():
            torch.manual_seed(int(question.hash, 16) >> 1)  # a sample repeats, and no other one is like it
            tokens = model.generate(**inputs, max_new_tokens=self.max_tokens, **sampling)[0, asked:]
        raw = processor.tokenizer.decode(tokens, skip_special_tokens=True)
        ends = model.generation_config.eos_token_id
        has_ended = int(tokens[-1]) in (ends if isinstance(ends, list) else [ends])
        return Answer("ok" if has_ended else "cut", {}, raw, named, asked, len(tokens))

    def _inputs(self, question: Question) -> dict[str, torch.Tensor]:
        """Return the inputs of the model: the conversation in its template, and the pictures."""
        processor = self._parts[1]
        parts = [*question.parts, *filter(None, [form_in_words(question)])]
        content = [{"type": "text", "text": part} if isinstance(part, str) else {"type": "image"} for part in parts]
        system = [{"role": "system", "content": [{"type": "text", "text": question.system}]}] if question.system else []
        turns = [{"role": role, "content": [{"type": "text", "text": words}]} for role, words in question.turns]
        talk = [*system, *turns, {"role": "user", "content": content}]
        text = processor.apply_chat_template(talk, add_generation_prompt=True, tokenize=False)
        pictures = [part for part in parts if not isinstance(part, str)]
        shown = {"images": pictures, "input_data_format": "channels_last"} if pictures else {}
        return self._moved(processor(text=[text], return_tensors="pt", **shown))

    def _likelihood(self, inputs: Mapping[str, torch.Tensor], words: str) -> float:
        """Return the log probability that the model continues with these words."""
        model, processor = self._parts
        added = processor.tokenizer(words, add_special_tokens=False, return_tensors="pt")["input_ids"].to(self.device)
        whole = dict(inputs)
        whole["input_ids"] = torch.cat([inputs["input_ids"], added], dim=1)
        for name, filling in (("attention_mask", 1), ("token_type_ids", 0), ("mm_token_type_ids", 0)):
            if name in inputs:
                whole[name] = torch.cat([inputs[name], torch.full_like(added, filling)], dim=1)
        logits = model(**whole).logits[0, -added.shape[1] - 1 : -1].float()
        return float(torch.log_softmax(logits, -1).gather(1, added[0, :, None]).sum())

    def _moved(self, inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        kind = getattr(torch, self.dtype)
        moved = {name: tensor.to(self.device) for name, tensor in inputs.items()}
        return {name: tensor.to(kind) if tensor.is_floating_point() else tensor for name, tensor in moved.items()}

    @cached_property
    def _folder(self) -> Any:
        return hub_folder(self.model, self.revision, KIND)

    @cached_property
    def _parts(self) -> tuple[Any, Any]:
        processor = loaded("AutoProcessor", self._folder, KIND, FIX)
        kind = getattr(torch, self.dtype)
        model = loaded_model("AutoModelForImageTextToText", self._folder, KIND, FIX, dtype=kind)
        return on_device(model, self.device), processor
