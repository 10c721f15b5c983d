"""Packs: files of replies made by hand or by rule, never by a model, to try methods without a model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic

from robo_rl.errors import InvalidSetting, OutOfReplies, UnknownName
from robo_rl.papers import papers
from robo_rl.rewards.chat.question import REPAIR, Answer, Question, Status
from robo_rl.rewards.identity import hash_of
from robo_rl.system.plain_files import parse_yaml, text_of

Words = Annotated[str, pydantic.StringConstraints(min_length=1)]


class _Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", strict=True, frozen=True)


class PackReply(_Strict):
    """Reply of a pack to one question, with its status; a status other than "ok" imitates a fault."""

    text: str = ""
    """Text of the reply."""
    status: Status = "ok"
    """Status, such as "cut", "refused" or "unreachable" to imitate a fault."""


class Match(_Strict):
    """Rule of a pack: replies to prompts whose last message contains certain words."""

    when: str
    """Words that the last message contains; "" for every prompt that no earlier rule matches."""
    samples: list[Words | PackReply]
    """Replies, one for each sample of an answer to the same prompt."""


class Pack(_Strict):
    """Contents of a pack of replies: for each purpose a list of replies in order, or rules that look at the prompt."""

    pack: Literal[1]
    """Version of the format."""
    made: Literal["by hand", "by rule"]
    """Origin of the replies; never a model."""
    author: Words
    """Author, and the knowledge that was used."""
    about: Words
    """Description of the replies."""
    method: Words
    """Method whose prompts the replies answer, such as text2reward."""
    task: Words
    """Environment, such as robo/ArmPush-v0."""
    replies: dict[str, list[list[Words | PackReply]] | list[Match]]
    """Purpose of a prompt -> replies: a list for each prompt in order, or rules (`Match`)."""


@dataclass(frozen=True)
class PackModel:
    """Chat model that answers from a pack of prepared replies; no model is asked."""

    name: str
    """Name of the pack, as requested."""
    pack: Pack
    """Contents of the pack."""

    @property
    def identity(self) -> tuple[str, str]:
        """Name, which says that no model answered, and a hash of the whole pack."""
        whole = json.dumps(self.pack.model_dump(), sort_keys=True).encode()
        return f"pack {self.name} (made {self.pack.made})", hash_of(whole)

    def require(self, task: str) -> None:
        """Raise InvalidSetting if the replies are for another environment than `task`."""
        if task != self.pack.task:
            raise InvalidSetting(
                f"The pack {self.name} has replies for another environment.",
                got=task,
                allowed=self.pack.task,
                fix="a pack for this one, a model (llm: endpoint), or, where the replies fit, a copy with another `task`",
            )

    def ask(self, questions: Iterable[Question]) -> Iterator[tuple[int, Answer]]:
        """Yield the replies; raises OutOfReplies for a prompt without replies, UnknownName for an unknown purpose."""
        for number, question in enumerate(questions):
            samples, sample = self._samples(question), question.sample or 0
            reply = samples[sample] if sample < len(samples) else None
            reply = PackReply(text=reply) if isinstance(reply, str) else reply
            missing = f"the pack {self.name} has {len(samples)} replies to this prompt"
            status: Status = "out of replies" if reply is None else reply.status
            text = missing if reply is None else reply.text
            yield number, Answer(status, {}, text, f"made {self.pack.made}", origin="pack")

    def report(self) -> str:
        """Return a line on the origin of the replies."""
        return f"{self.identity[0]}: replies made {self.pack.made}, not by a model ({self.pack.author})"

    def _samples(self, question: Question) -> Sequence[str | PackReply]:
        purpose = question.purpose
        if purpose not in self.pack.replies:
            if purpose.endswith(REPAIR):
                return ()
            raise UnknownName(f"purpose of the pack {self.name}:", purpose, self.pack.replies)
        entries: Sequence[Sequence[str | PackReply] | Match] = self.pack.replies[purpose]
        last = question.words
        for number, entry in enumerate(entries):
            if isinstance(entry, Match):
                if entry.when in last:
                    return entry.samples
            elif number == question.round:
                return entry
        asked = f"prompt {question.round} (from 0): {last[:80]!r}"
        raise OutOfReplies(
            f"The pack {self.name} is at its end.",
            got=f"{asked} for {purpose!r}",
            allowed=f"{len(entries)} prompts or rules of this purpose",
            fix="fewer rounds, a longer pack, or a model: --llm endpoint",
        )


def pack_files() -> dict[str, Path]:
    """Return name -> file of the packs of the workbench and of papers, sorted by name."""
    found = {path.stem: path for path in (Path(__file__).parent / "packs").glob("*.yaml")}
    for paper in papers().values():
        found = {**paper.packs, **found}
    return dict(sorted(found.items()))


def read_pack(name: str) -> PackModel:
    """Read a pack of replies by its name, or from a YAML or JSON file.

    Raises UnknownName, or InvalidSetting with the problem.
    """
    is_path = name.endswith((".yaml", ".yml", ".json"))
    if not is_path and name not in pack_files():
        raise UnknownName("pack", name, pack_files(), fix="or name a file: pack:FILE.yaml")
    path = Path(name) if is_path else pack_files()[name]
    found = _contents(path)
    try:
        return PackModel(path.stem, Pack.model_validate(found))
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise InvalidSetting(
            f"{path} is not a pack of replies.",
            got=f"{where}: {first['msg']}",
            allowed=", ".join(Pack.model_fields),
            fix="see docs/rewards/language-models.md",
        ) from None


def _contents(path: Path) -> Mapping[str, Any]:
    allowed = "a YAML or JSON file of replies"
    text = text_of(path, allowed)
    try:
        found = json.loads(text) if path.suffix == ".json" else parse_yaml(text, str(path))
    except (ValueError, RecursionError) as error:
        raise InvalidSetting(f"{path} cannot be read.", got=error, allowed=allowed) from None
    if not isinstance(found, dict):
        raise InvalidSetting(f"{path} is not a pack of replies.", got=type(found).__name__, allowed="a mapping")
    return found
