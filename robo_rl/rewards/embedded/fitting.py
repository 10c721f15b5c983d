"""How the embedded model is learned: first where things are, then what sentences mean.

One half after the other, because localisation is what is hard: trained end to end, the same heads order pictures far worse.
B pictures, S slots, C captions.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from robo_rl.rewards.embedded.descent import Descent, EmbeddedConfig, Watch, descend
from robo_rl.rewards.embedded.heads import Vocabulary
from robo_rl.rewards.embedded.measuring import Measures, measure
from robo_rl.rewards.embedded.model import EmbeddedModel, Origin
from robo_rl.rewards.embedded.pictures import CaptionedPictures
from robo_rl.rewards.embedded.seeing import fit_encoder


def fit(
    data: CaptionedPictures, config: EmbeddedConfig, watch: Watch = lambda steps, _: steps
) -> tuple[EmbeddedModel, Measures]:
    """Returns a model fitted to captioned pictures, and what it achieves on those held out; the same for the same seed."""
    train, test = halves(data, config.held_out)
    with torch.random.fork_rng(devices=()):  # layers take their initial weights from the global generator only
        torch.manual_seed(config.seed)
        model = EmbeddedModel(origin_of(data))
        fit_encoder(model.encoder, train, config, watch)
    fit_heads(model, train, test, config, watch)
    return model, measure(model, test)


def halves(data: CaptionedPictures, held_out: float) -> tuple[CaptionedPictures, CaptionedPictures]:
    """Returns the first scenes, and those held out."""
    begins = np.flatnonzero(data.firsts == np.arange(len(data)))
    cut = int(begins[min(len(begins) - 1, round(len(begins) * (1 - held_out)))])
    return data.part(slice(0, cut)), data.part(slice(cut, len(data)))


def origin_of(data: CaptionedPictures) -> Origin:
    """Returns what a model of these pictures is made for."""
    words = Vocabulary.of([*data.captions, *(words for each in data.instructions for words in each)]).words
    told = tuple(each[0] for each in data.instructions)
    return Origin(data.environment, data.camera, data.pictures.shape[1], data.slots, words, told, data.recorded, data.has_task)


def fit_heads(
    model: EmbeddedModel, train: CaptionedPictures, test: CaptionedPictures, config: EmbeddedConfig, watch: Watch
) -> None:
    """Learns sentences with a frozen encoder, and keeps the heads that order held-out pictures best.

    The loss does not tell: the similarity gets worse at ordering pictures while it gets better at choosing captions.
    """
    chance = torch.Generator().manual_seed(config.seed)
    reading = Reading(model, train, chance)
    described = model.describe(test.pictures)
    best, found = copy.deepcopy(model.heads.state_dict()), -2.0

    def check(step: int) -> None:
        nonlocal best, found
        if (step + 1) % config.check_every == 0 or step + 1 == config.read_steps:
            measures = measure(model, test, described)
            order = measures.progress_order + measures.similarity_order
            if order > found:
                best, found = copy.deepcopy(model.heads.state_dict()), order

    how = Descent("read", config.read_steps, config.batch, config.lr, len(train), chance)
    descend(model.heads, reading.loss, how, watch, check)
    model.heads.load_state_dict(best)


class Reading:
    """What the heads are trained on: described pictures with sentences of known truth."""

    def __init__(self, model: EmbeddedModel, data: CaptionedPictures, chance: torch.Generator) -> None:
        self._heads, self._chance = model.heads, chance
        self._described = model.describe(data.pictures)
        self._firsts = torch.from_numpy(data.firsts)
        self._truth = torch.from_numpy(data.truth).float()
        self._progress, self._complete = torch.from_numpy(data.progress), torch.from_numpy(data.complete).float()
        self._captions = torch.from_numpy(model.vocabulary.numbers(data.captions))
        wordings = [(words, index) for index, each in enumerate(data.instructions) for words in each]
        self._wordings = torch.from_numpy(model.vocabulary.numbers([words for words, _ in wordings]))
        self._meant = torch.tensor([index for _, index in wordings])
        named = [[data.slots.index(name) for name in (*names, data.slots[0])[:2]] for names in data.named]
        self._named = torch.tensor(named)[self._meant]  # (wordings, 2)

    def loss(self, rows: Tensor) -> Tensor:
        """Returns the sum of the losses of both spaces."""
        now, firsts = self._described[rows], self._described[self._firsts[rows]]
        return self._relation_loss(rows, firsts, now) + 0.2 * self._contrast_loss(rows, now)

    def _relation_loss(self, rows: Tensor, firsts: Tensor, now: Tensor) -> Tensor:
        """Squared error of progress, cross entropies of completion and of the slots that a sentence names.

        Half of the sentences are about what is there.
        """
        said = self._heads.read(self._wordings)
        rounds = [functional.cross_entropy(self._heads.chosen(said).flatten(0, 1), self._named.flatten())]
        for is_there in (True, False):
            fits = (self._progress[rows] > 0) == is_there  # (B, I)
            asked = torch.multinomial(fits[:, self._meant].float() + 1e-6, 1, generator=self._chance)[
                :, 0
            ]  # a wording for each picture
            odds = self._heads.relate(firsts, now, said[asked])
            meant = self._meant[asked]
            progress, complete = self._progress[rows, meant], self._complete[rows, meant]
            rounds.append(20 * (odds[:, 0] - progress).square().mean())
            rounds.append(functional.binary_cross_entropy_with_logits(odds[:, 1], complete))
        return torch.stack(rounds).sum()

    def _contrast_loss(self, rows: Tensor, now: Tensor) -> Tensor:
        """InfoNCE with many positives: which captions are true of a picture, which pictures a caption is true of.

        Differs from it: an instruction shall choose among the pictures by progress (ListNet, Cao et al. 2007), because
        nothing else orders pictures between which no caption tells a difference.
        """
        heads = self._heads
        pictures, captions = heads.embed_pictures(now), heads.embed_texts(self._captions)
        odds, truth = heads.scale.exp() * pictures @ captions.T, self._truth[rows]  # (B, C)
        by_picture = mean_log_share(odds, truth)
        by_caption = mean_log_share(odds.T, truth.T)
        told = heads.scale.exp() * pictures @ heads.embed_texts(self._wordings).T  # (B, wordings)
        wanted = (self._progress[rows][:, self._meant] / 0.1).softmax(0)
        by_progress = (wanted * told.log_softmax(0)).sum(0).mean()
        return -(by_picture + by_caption) / 2 - by_progress


def mean_log_share(odds: Tensor, truth: Tensor) -> Tensor:
    """Returns the mean over rows with anything true, of the mean log share of what is true."""
    count = truth.sum(1)
    shares = (truth * odds.log_softmax(1)).sum(1) / count.clamp_min(1)
    return shares.sum() / (count > 0).sum().clamp_min(1)
