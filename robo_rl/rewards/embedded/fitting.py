"""Fit of the embedded model: first the picture encoder, from the simulator's state, then the heads that read sentences.

The two are fitted one after the other, because localisation is the hard part: trained end to end, the same heads order pictures
far worse. Shapes: B pictures, S slots, C captions.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from robo_rl.environments.captioned_pictures import CaptionedPictures
from robo_rl.rewards.embedded.descent import Descent, EmbeddedConfig, Watch, descend
from robo_rl.rewards.embedded.encoder import Located, PictureEncoder
from robo_rl.rewards.embedded.heads import Vocabulary
from robo_rl.rewards.embedded.measuring import Measures, measure
from robo_rl.rewards.embedded.model import EmbeddedModel, Origin

STILL = 12
"""Largest difference in grey levels over all pictures at which a pixel counts as still."""
JITTER = 2.5
"""[pixel] standard deviation of the window centres in training; larger than the errors of the first stage."""


def fit_encoder(encoder: PictureEncoder, data: CaptionedPictures, config: EmbeddedConfig, watch: Watch) -> None:
    """Fit the picture encoder to locate all objects."""
    calibrate(encoder, data)
    targets, pictures = Targets(data, encoder), torch.from_numpy(data.pictures)
    parts = torch.split(pictures, 64)
    coarse = torch.cat([encoder.prepared(part) for part in parts])  # once, not in every update
    chance = torch.Generator().manual_seed(config.seed)

    def loss(rows: Tensor) -> Tensor:
        located, seen = encoder.look(coarse[rows]), targets.seen[rows].clone()
        seen[:, 0] = False  # the hand is always refined
        batch, slots = seen.nonzero().T
        about = targets.about(located, rows, chance)
        hand, places, presence = encoder.second_look(pictures[rows], encoder.usual, located, about, (batch, slots))
        exact = targets.exactness(hand, rows, things=None) + targets.exactness(places, rows, (batch, slots))
        return targets.loss(located, rows) + exact + targets.presence_loss(presence, rows)

    descend(encoder, loss, Descent("see", config.see_steps, config.see_batch, config.see_lr, len(data), chance), watch)


def calibrate(encoder: PictureEncoder, data: CaptionedPictures) -> None:
    """Compute from pictures what the encoder keeps fixed: the scene's usual picture, its still pixels, the camera's pose."""
    few = data.pictures[:: max(1, len(data) // 400)].astype(np.float32)
    usual = np.median(few, axis=0)
    lowest, highest = data.pictures.min(0), data.pictures.max(0)
    apart = np.maximum(highest - usual, usual - lowest).max(-1)
    known = np.isfinite(data.positions).all(-1)
    positions, places = data.positions[known].astype(np.float64), data.places[known].astype(np.float64)
    depth = places[:, 2:]
    camera = np.linalg.lstsq(np.hstack([places[:, :2] * depth, depth, np.ones_like(depth)]), positions, rcond=None)[0]
    found = {
        "usual": usual,
        "still": apart <= STILL,
        "depth": [depth.mean(), depth.std() + 0.01],
        "camera": camera,
        "middle": positions.mean(0),
    }
    for name, value in found.items():
        buffer = encoder.get_buffer(name)
        buffer.copy_(torch.as_tensor(value, dtype=buffer.dtype))


class Targets:
    """What the picture encoder shall predict: cells of the maps, places in the picture, depth and visibility."""

    def __init__(self, data: CaptionedPictures, encoder: PictureEncoder) -> None:
        self.seen, places = torch.from_numpy(data.seen), torch.nan_to_num(torch.from_numpy(data.places))
        first, cell = encoder.cells[0, 0], encoder.cells[1, 0] - encoder.cells[0, 0]
        cells = ((places[..., :2] - first) / cell).clamp(0, encoder.side - 1.001)
        self._corner, self._rest, self._side = cells.floor().long(), cells - cells.floor(), encoder.side
        self.places = torch.cat([places[..., :2], (places[..., 2:] - encoder.depth[0]) / encoder.depth[1]], -1)
        self._unit = torch.stack([cell, cell, torch.tensor(1.0)])
        self.pixel = 2 / data.pictures.shape[1]
        self._fine = torch.tensor([self.pixel, self.pixel, 0.02 / encoder.depth[1]])

    def about(self, located: Located, rows: Tensor, chance: torch.Generator) -> Tensor:
        """Return window centres (B, S, 2): a few pixels off for visible objects, as located for the others."""
        true = self.places[rows][..., :2]
        missed = true + JITTER * self.pixel * torch.randn(true.shape, generator=chance)
        return torch.where(self.seen[rows][..., None], missed, located.places[..., :2].detach())

    def exactness(self, found: Tensor, rows: Tensor, things: tuple[Tensor, Tensor] | None) -> Tensor:
        """Return the mean Huber loss of refined places, a scalar; errors are in units of a pixel and of 2 cm of depth.

        Args:
            found: (n, 3) refined places, coded as in `Located.places`.
            rows: (B,) numbers of the pictures.
            things: (n,) indices into `rows` and (n,) slots of the objects, which all count; None for the hand in every picture,
                which counts only where it is visible.
        """
        true = self.places[rows][:, 0] if things is None else self.places[rows][things]
        weight = self.seen[rows][:, 0].float() if things is None else torch.ones(len(true))
        errors = (found - true) / self._fine
        lost = functional.huber_loss(errors, torch.zeros_like(errors), reduction="none").sum(-1)
        return (lost * weight).sum() / weight.sum().clamp_min(1)

    def presence_loss(self, presence: Tensor, rows: Tensor) -> Tensor:
        """Return the cross entropy of the predicted presences (B, S), log odds, for the pictures `rows` (B,), a scalar."""
        return functional.binary_cross_entropy_with_logits(presence, self.seen[rows].float())

    def loss(self, located: Located, rows: Tensor) -> Tensor:
        """Return the loss of the encoder's first stage, a scalar.

        It is the Huber loss of places of visible objects, plus the cross entropies of presences and of cells.
        """
        seen = self.seen[rows].float()
        errors = (located.places - self.places[rows]) / self._unit
        place = (functional.huber_loss(errors, torch.zeros_like(errors), reduction="none").sum(-1) * seen).sum() / seen.sum()
        return place + self.presence_loss(located.presence, rows) + 0.3 * self._cell_loss(located.odds, rows)

    def _cell_loss(self, odds: Tensor, rows: Tensor) -> Tensor:
        """Return the cross entropy of the maps with the four cells around each visible object."""
        seen, corner, rest = self.seen[rows].float(), self._corner[rows], self._rest[rows]
        log_shares, loss = odds.log_softmax(-1), torch.zeros(())
        for right, down in ((0, 0), (0, 1), (1, 0), (1, 1)):
            weight = (rest[..., 0] if right else 1 - rest[..., 0]) * (rest[..., 1] if down else 1 - rest[..., 1])
            cell = (corner[..., 1] + down) * self._side + corner[..., 0] + right
            loss = loss - (weight * seen * log_shares.gather(-1, cell[..., None])[..., 0]).sum()
        return loss / seen.sum()


def fit(
    data: CaptionedPictures, config: EmbeddedConfig, watch: Watch = lambda steps, _: steps
) -> tuple[EmbeddedModel, Measures]:
    """Return a model fitted to captioned pictures, and its measures on held-out ones; the seed determines both.

    watch: passes the steps of the fit on, and may show progress.
    """
    train, test = halves(data, config.held_out)
    with torch.random.fork_rng(devices=()):  # layers take their initial weights from the global generator only
        torch.manual_seed(config.seed)
        model = EmbeddedModel(replace(origin_of(data), reads=config.reads, sees=config.sees))
        fit_encoder(model.encoder, train, config, watch)
    fit_heads(model, train, test, config, watch)
    return model, measure(model, test)


def halves(data: CaptionedPictures, held_out: float) -> tuple[CaptionedPictures, CaptionedPictures]:
    """Divide captioned pictures into those for training, the first scenes, and the held-out ones, the last scenes."""
    begins = np.flatnonzero(data.firsts == np.arange(len(data)))
    cut = int(begins[min(len(begins) - 1, round(len(begins) * (1 - held_out)))])
    return data.part(slice(0, cut)), data.part(slice(cut, len(data)))


def origin_of(data: CaptionedPictures) -> Origin:
    """Describe the training domain of these pictures: camera, size, words, instructions."""
    words = Vocabulary.of([*data.captions, *(words for each in data.instructions for words in each)]).words
    examples = tuple(each[0] for each in data.instructions)
    return Origin(
        data.environment, data.camera, data.pictures.shape[1], data.slots, words, examples, data.recorded, data.has_task
    )


def fit_heads(
    model: EmbeddedModel, train: CaptionedPictures, test: CaptionedPictures, config: EmbeddedConfig, watch: Watch
) -> None:
    """Fit the heads with a frozen encoder, and keep those that order held-out pictures best.

    The loss does not show which these are: the similarity gets worse at ordering pictures while it gets better at choosing
    captions.
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
    """Data from which the heads are trained: pictures described by the encoder, and sentences of known truth.

    Computes the loss of a batch of pictures.
    """

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
        """Return the loss of the heads for training pictures with the numbers `rows` (B,), a scalar.

        It is the loss of progress and completion plus 0.2 times the contrastive loss between pictures and sentences.
        """
        now, firsts = self._described[rows], self._described[self._firsts[rows]]
        return self._relation_loss(rows, firsts, now) + 0.2 * self._contrast_loss(rows, now)

    def _relation_loss(self, rows: Tensor, firsts: Tensor, now: Tensor) -> Tensor:
        """Return the squared error of progress plus the cross entropies of completion and of named slots.

        Half of the sentences fit.
        """
        said = self._heads.read(self._wordings)
        rounds = [functional.cross_entropy(self._heads.chosen(said).flatten(0, 1), self._named.flatten())]
        for is_there in (True, False):
            fits = (self._progress[rows] > 0) == is_there  # (B, I)
            shares = fits[:, self._meant].float() + 1e-6
            asked = torch.multinomial(shares, 1, generator=self._chance)[:, 0]  # a wording for each picture
            odds = self._heads.relate(firsts, now, said[asked])
            meant = self._meant[asked]
            progress, complete = self._progress[rows, meant], self._complete[rows, meant]
            rounds.append(20 * (odds[:, 0] - progress).square().mean())
            rounds.append(functional.binary_cross_entropy_with_logits(odds[:, 1], complete))
        return torch.stack(rounds).sum()

    def _contrast_loss(self, rows: Tensor, now: Tensor) -> Tensor:
        """Return InfoNCE with several positives: captions that are true of a picture, and pictures of which a caption is true.

        Differs from InfoNCE: an instruction chooses among the pictures by progress (ListNet, Cao et al. 2007), because nothing
        else orders pictures with the same captions.
        """
        heads = self._heads
        pictures, captions = heads.embed_pictures(now), heads.embed_texts(self._captions)
        odds, truth = heads.scale.exp() * pictures @ captions.T, self._truth[rows]  # (B, C)
        by_picture = mean_log_share(odds, truth)
        by_caption = mean_log_share(odds.T, truth.T)
        instructed = heads.scale.exp() * pictures @ heads.embed_texts(self._wordings).T  # (B, wordings)
        wanted = (self._progress[rows][:, self._meant] / 0.1).softmax(0)
        by_progress = (wanted * instructed.log_softmax(0)).sum(0).mean()
        return -(by_picture + by_caption) / 2 - by_progress


def mean_log_share(odds: Tensor, truth: Tensor) -> Tensor:
    """Return the mean log probability of the true columns, over the rows that have one."""
    count = truth.sum(1)
    shares = (truth * odds.log_softmax(1)).sum(1) / count.clamp_min(1)
    return shares.sum() / (count > 0).sum().clamp_min(1)
