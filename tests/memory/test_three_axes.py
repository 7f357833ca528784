"""Memory on three rotary axes: the library's own forward, and a decoder written out by hand."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from hermes_like.config import MemoryConfig
from hermes_like.memory.clips import Clips
from hermes_like.memory.merge import isolate, merge
from hermes_like.memory.rows import RowsCache
from hermes_like.memory.single import encode_alone
from hermes_like.memory.snapshot import restore_snapshot, take_snapshot
from hermes_like.models.base import FrameLayout
from hermes_like.models.qwen3_vl import stamp_text
from tests.memory.qwen_reference import QwenReference
from tests.memory.streams import append, ask_logits, images, memory
from tests.memory.test_merge import returned, stored

TEXT = [81, 117, 101, 115, 116]
REINDEX = ("lazy", "eager")


def plain_positions(adapter, num_frames: int, clip_frames: int) -> list[tuple[int, int, int]]:
    """Positions of prefix, frames and question by loops, from the families' descriptions."""
    rows, columns = adapter.dims.grid
    is_stamped = bool(adapter.dims.frame_text_tokens)
    step = getattr(adapter._model.config.vision_config, "tokens_per_second", 1)
    result = [(i, i, i) for i in range(len(adapter.prefix_ids()))]
    for frame in range(num_frames):
        if is_stamped or frame % clip_frames == 0:
            start = max(max(p) for p in result) + 1
        if is_stamped:
            lead = len(adapter._text.encode(stamp_text(0.0)[0]))
            result += [(start + i,) * 3 for i in range(lead)]
            start += lead
        time = start if is_stamped else start + step * (frame % clip_frames)
        result += [(time, start + row, start + c) for row in range(rows) for c in range(columns)]
        if is_stamped:
            end = max(max(p) for p in result) + 1
            result.append((end, end, end))
    start = max(max(p) for p in result) + 1
    return result + [(start + i,) * 3 for i in range(len(TEXT))]


def one_shot(
    adapter, pictures, positions: Tensor | None, text: Sequence[int] = tuple(TEXT)
) -> Tensor:
    """Logits of the library's model over ids and pixels, with its own attention."""
    model = copy.deepcopy(adapter._model)
    model.set_attn_implementation("sdpa")
    video = model.config.video_token_id
    count = adapter.dims.grid[0] * adapter.dims.grid[1]
    ids = list(adapter.prefix_ids())
    if adapter.dims.frame_text_tokens:
        for index in range(len(pictures)):
            before, after = (adapter._text.encode(t) for t in stamp_text(float(index)))
            ids += before + [video] * count + after
    else:
        ids += [video] * (count * len(pictures))
    ids += text
    types = torch.tensor([[2 if i == video else 0 for i in ids]])
    cut, grid = adapter.patches(pictures)
    with torch.inference_mode():
        return model(
            input_ids=torch.tensor([ids]),
            pixel_values_videos=cut,
            video_grid_thw=grid,
            mm_token_type_ids=types,
            position_ids=None if positions is None else positions[:, None],
            use_cache=True,
        ).logits[0, -1]


@pytest.mark.parametrize(
    ("chunk", "scheme"), [(1, "right_aligned"), (3, "right_aligned"), (9, "global")]
)
def test_streaming_equals_the_library_at_once(qwen, chunk: int, scheme: str) -> None:
    """Frames streamed in pieces, against one forward of the library over ids and pixels."""
    pictures = images(9)
    config = MemoryConfig(positions=scheme, segment_frames=4)
    mine = memory(qwen, "full", resident=None, config=config)
    append(mine, pictures, chunk)
    positions = torch.tensor(plain_positions(qwen, 9, 4)).T
    for slots in mine.cache.layers:
        assert torch.equal(slots.positions, positions[:, : -len(TEXT)])
    want = one_shot(qwen, pictures, positions)
    torch.testing.assert_close(ask_logits(mine, TEXT), want, atol=2e-5, rtol=0)
    mine.check()


def test_a_video_lies_as_the_library_lays_it(qwen) -> None:
    """One clip: the library's own positions, but for text behind a video where it is wrong.

    Since 5.x the library begins the text behind a Qwen2-VL or Qwen2.5-VL video behind its first
    frame; the released weights were trained with one behind the largest position.
    """
    pictures = images(7)
    mine = memory(qwen, "full", resident=None, config=MemoryConfig(segment_frames=8))
    append(mine, pictures)
    core, video = qwen._core, qwen._model.config.video_token_id
    held = mine.cache.layers[0]
    per_frame = qwen.dims.tokens_per_frame
    cells = held.ids.clamp(min=0) % per_frame
    lead = qwen.dims.frame_text_tokens - 1
    is_text = (held.ids < 0) | ((cells < lead) | (cells == per_frame - 1)) & (lead > 0)
    ids = torch.where(is_text, 1, video)
    grid = torch.tensor([[7, qwen.dims.grid[0] * 2, qwen.dims.grid[1] * 2]])
    seconds = {} if lead > 0 or "2.5" not in qwen.name else {"second_per_grid_ts": [1.0]}
    types = torch.where(is_text, 0, 2)[None]
    at_once, _ = core.get_rope_index(ids[None], types, video_grid_thw=grid, **seconds)
    assert torch.equal(held.positions, at_once[:, 0])
    if lead > 0:
        want = one_shot(qwen, pictures, None)
        torch.testing.assert_close(ask_logits(mine, TEXT), want, atol=2e-5, rtol=0)


class Twin:
    """A memory and the hand-written decoder, kept in step."""

    def __init__(self, adapter, scheme: str, resident: int, policy: str = "hermes") -> None:
        config = MemoryConfig(positions=scheme, protected_frames=0, reindex="eager")
        switches = {"summary": "none", "smoothing": (0.1, 0.3, 0.4)}
        self.mine = memory(adapter, policy, resident=resident, config=config, **switches)
        self.reference = QwenReference(adapter)
        self.adapter, self.num_prefix = adapter, len(adapter.prefix_ids())
        layers = adapter.dims.num_layers
        self.where = [torch.empty(3, 0, dtype=torch.int64)] * layers
        self.visible = [torch.empty(0, dtype=torch.bool)] * layers
        own = torch.arange(self.num_prefix).expand(3, -1)
        self._add(adapter.embed_text(adapter.prefix_ids()), own)

    def _add(self, embeds: Tensor, own: Tensor) -> Tensor:
        logits = self.reference.run(embeds, own, self.where, self.visible)
        seen = torch.ones(own.shape[1], dtype=torch.bool)
        self.where = [torch.cat([w, own], 1) for w in self.where]
        self.visible = [torch.cat([v, seen]) for v in self.visible]
        return logits

    def watch(self, pictures) -> None:
        embeds = append(self.mine, pictures, chunk=len(pictures))
        self._add(embeds, self.mine.cache.layers[0].positions[:, -embeds.shape[0] :])

    def sync(self, cache) -> None:
        """Take over what each layer of a cache holds, and where."""
        for layer, slots in enumerate(cache.layers):
            video = slots.ids[self.num_prefix :] + self.num_prefix
            held = torch.cat([torch.arange(self.num_prefix), video])
            self.visible[layer] = torch.zeros_like(self.visible[layer])
            self.visible[layer][held] = True
            self.where[layer] = self.where[layer].clone()
            self.where[layer][:, held] = slots.positions

    def ask(self, cache) -> tuple[Tensor, Tensor]:
        """Logits of both behind what a fork holds; neither remembers the question."""
        self.sync(cache)
        before = list(self.reference.raw), list(self.reference.values)
        start = max(int(slots.positions.max()) for slots in cache.layers) + 1
        text = self.adapter.embed_text(TEXT)
        own = (torch.arange(len(TEXT)) + start).expand(3, -1)
        want = self.reference.run(text, own, self.where, self.visible)
        self.reference.raw, self.reference.values = before
        got = self.mine.extend(cache, text, -900 - torch.arange(len(TEXT)), logits=True)
        return got, want


@torch.inference_mode()
@pytest.mark.parametrize("scheme", ["right_aligned", "global"])
def test_eviction_and_return_equal_a_masked_reference(qwen, scheme: str) -> None:
    """Unequal layers after every segment; then tokens of evicted segments come back."""
    twin = Twin(qwen, scheme, resident=5 * qwen.dims.tokens_per_frame)
    mine, blocks = twin.mine, []
    for segment in range(3):
        twin.watch(images(4, seed=segment))
        blocks.append(stored(mine, 4 * segment, 4))
        assert mine.compact() or not segment
        mine.check()
        twin.sync(mine.cache)
    kept = {tuple(v.nonzero().flatten().tolist()) for v in twin.visible}
    assert len(kept) > 3, "expected layers that hold different tokens"
    with mine.cache.fork() as cache:
        got, want = twin.ask(cache)
    torch.testing.assert_close(got, want, atol=2e-5, rtol=0)
    with mine.cache.fork() as cache:
        assert merge(cache, returned([blocks[0], blocks[1]]), mine.scheme) > 0
        came, expected = twin.ask(cache)
    torch.testing.assert_close(came, expected, atol=2e-5, rtol=0)
    assert not torch.allclose(came, got, atol=1e-3), "expected the returned tokens to matter"


@torch.inference_mode()
def test_lengths_may_differ(qwen) -> None:
    """Layers with different numbers of slots, one question position for all."""
    twin = Twin(qwen, "right_aligned", resident=400)
    twin.watch(images(6))
    generator = torch.Generator().manual_seed(4)
    total, num_prefix = twin.visible[0].shape[0], twin.num_prefix
    kept = []
    for layer in range(qwen.dims.num_layers):
        extra = torch.randperm(total - num_prefix, generator=generator)[: 5 + 3 * layer]
        kept.append(torch.cat([torch.arange(num_prefix), extra.sort().values + num_prefix]))
    layers = twin.mine.cache.layers
    ids = [slots.ids[index] for slots, index in zip(layers, kept, strict=True)]
    dense = twin.mine.scheme.arrange(ids, [])
    for slots, index, new in zip(layers, kept, dense, strict=True):
        slots.rewrite(
            slots.raw_keys[:, :, index], slots.values[:, :, index], new, slots.ids[index],
            twin.mine.cache.rotary,
        )  # fmt: skip
    assert len(set(twin.mine.cache.lengths)) == len(layers)
    with twin.mine.cache.fork() as cache:
        got, want = twin.ask(cache)
    torch.testing.assert_close(got, want, atol=2e-5, rtol=0)


@torch.inference_mode()
def test_retrieving_everything_equals_the_full_cache(qwen) -> None:
    full = memory(qwen, "full", resident=None)
    mine = memory(qwen, "hermes", resident=3 * qwen.dims.tokens_per_frame, summary="none")
    pictures = images(8)
    append(full, pictures)
    append(mine, pictures)
    blocks = stored(mine, 0, 8)
    assert mine.compact()
    with mine.cache.fork() as cache:
        merge(cache, returned([blocks]), mine.scheme)
        text = qwen.embed_text(TEXT)
        got = mine.extend(cache, text, -900 - torch.arange(len(TEXT)), logits=True)
    torch.testing.assert_close(got, ask_logits(full, TEXT), atol=2e-5, rtol=0)


@torch.inference_mode()
def test_one_number_on_all_axes_changes_no_attention(qwen) -> None:
    """Rotary angles are relative: a frame and a question moved alike see each other alike."""
    generator = torch.Generator().manual_seed(2)
    reference = QwenReference(qwen)
    count = qwen.dims.tokens_per_frame
    x = torch.randn(2, count, qwen.dims.head_dim, generator=generator)
    offsets = qwen.frame_layout.offsets
    plain = reference.rotated(x, offsets)
    moved = reference.rotated(x, offsets + 137)
    torch.testing.assert_close(moved @ moved.mT, plain @ plain.mT, atol=1e-4, rtol=0)
    mine = memory(qwen, "full", resident=None)
    append(mine, images(5))
    with mine.cache.fork() as cache:
        for slots in cache.layers:
            slots.detach()
            slots.rewrite(
                slots.raw_keys, slots.values, slots.positions + 137, slots.ids, mine.cache.rotary
            )
        text = qwen.embed_text(TEXT)
        got = mine.extend(cache, text, -900 - torch.arange(len(TEXT)), logits=True)
    torch.testing.assert_close(got, ask_logits(mine, TEXT), atol=1e-4, rtol=0)
    one_axis = torch.tensor([[137], [0], [0]])
    bent = reference.rotated(x, offsets + one_axis)
    torch.testing.assert_close(bent @ bent.mT, plain @ plain.mT, atol=1e-4, rtol=0)
    text = reference.rotated(x, torch.zeros(3, count, dtype=torch.int64) + 40)
    assert not torch.allclose(text @ bent.mT, text @ plain.mT, atol=1e-2)


@torch.inference_mode()
@pytest.mark.parametrize("policy", ["hermes", "uniform"])
def test_a_clip_moves_by_one_number_on_all_axes(qwen, policy: str) -> None:
    """However often layers are compacted, what is left of a clip keeps its inner offsets."""
    mine = memory(qwen, policy, resident=4 * qwen.dims.tokens_per_frame)
    clips = mine.scheme.clips
    ends = set()
    for segment in range(4):
        append(mine, images(4, seed=segment), chunk=2)
        mine.compact()
        mine.check()
        for slots in mine.cache.layers:
            base = slots.positions - clips.offsets(slots.ids)
            assert torch.equal(base, base[:1].expand(3, -1)), "an axis moved alone"
            of = clips.of(slots.ids)
            for clip in of[of >= 0].unique():
                assert base[0, of == clip].unique().shape[0] == 1
            ends.add(int(slots.positions.max()))
    with mine.cache.fork() as cache:
        merge(cache, returned([stored(mine, 12, 4)]), mine.scheme)
    assert len(ends) < 12, "positions grow although what is held does not"


@torch.inference_mode()
def test_a_frame_alone_has_the_same_place_whichever_it_was(qwen) -> None:
    """So questions about single frames can be asked side by side."""
    mine = memory(qwen, "full", resident=None)
    append(mine, images(7))
    places = []
    for frame in (0, 2, 3, 5):
        with mine.cache.fork() as cache:
            isolate(cache, returned([stored(mine, frame, 1)]), mine.scheme, len(qwen.prefix_ids()))
            places.append(cache.layers[0].positions.clone())
    assert all(torch.equal(places[0], place) for place in places[1:])
    assert torch.equal(places[0], mine.cache.layers[0].positions[:, : places[0].shape[1]])


@torch.inference_mode()
def test_frames_side_by_side_equal_one_by_one(qwen) -> None:
    """The pass of a scan over several frames, against a fork that holds just one of them."""
    mine = memory(qwen, "full", resident=None)
    append(mine, images(7))
    num_prefix, text = len(qwen.prefix_ids()), qwen.embed_text(TEXT)
    found, rows = [], []
    for frame in (1, 2, 6):
        rows.append(returned([stored(mine, frame, 1)]))
        with mine.cache.fork() as cache:
            isolate(cache, rows[-1], mine.scheme, num_prefix)
            found.append(mine.extend(cache, text, -900 - torch.arange(len(TEXT)), logits=True))
    batch = RowsCache(mine.cache, rows, mine.scheme, num_prefix)
    own = batch.next_position + torch.arange(len(TEXT))
    with batch.step([own] * qwen.dims.num_layers, -1 - own):
        logits = qwen.forward_rows(text.repeat(3, 1), batch, 3)
    torch.testing.assert_close(logits, torch.stack(found), atol=2e-5, rtol=0)


@torch.inference_mode()
def test_a_frame_encoded_again_is_the_frame(qwen) -> None:
    """From its picture and time: the first frame of a stream exactly, later ones nearly."""
    mine = memory(qwen, "full", resident=None)
    pictures = images(3)
    append(mine, pictures)
    for frame in (0, 2):
        made = encode_alone(mine, qwen.embed_frames([pictures[frame]]), frame, float(frame))
        blocks = stored(mine, frame, 1)
        for layer, (got, want) in enumerate(zip(made, blocks, strict=True)):
            assert torch.equal(got.ids, want.ids)
            if frame == 0 or layer == 0:
                torch.testing.assert_close(got.raw_keys, want.raw_keys, atol=2e-5, rtol=0)
                torch.testing.assert_close(got.values, want.values, atol=2e-5, rtol=0)


@torch.inference_mode()
@pytest.mark.parametrize("scheme", ["right_aligned", "global", "released"])
@pytest.mark.parametrize("policy", ["hermes"])
def test_random_steps_keep_all_invariants(qwen, policy: str, scheme: str) -> None:
    rng = random.Random(f"{policy} {scheme}")
    config = MemoryConfig(positions=scheme, protected_frames=1, reindex=rng.choice(REINDEX))
    limit = 5 * qwen.dims.tokens_per_frame
    mine = memory(qwen, policy, resident=limit, config=config)
    for step in range(12):
        action = rng.choice(["frames", "frames", "compact", "ask", "drop"])
        if max(mine.cache.lengths) > 2 * limit + 100:
            action = "compact"
        if action == "frames":
            append(mine, images(rng.randint(1, 4), seed=step), chunk=rng.choice([1, 4]))
        elif action == "compact":
            mine.compact()
            assert max(mine.cache.lengths) <= limit + len(qwen.prefix_ids())
        elif action == "ask":
            ask_logits(mine, [40 + step])
        elif mine.num_frames:
            mine.drop_frames([rng.randrange(mine.num_frames)])
        mine.check()
    assert mine.cache.num_bytes == mine.expected_bytes()


@torch.inference_mode()
def test_a_snapshot_brings_all_axes_back(qwen) -> None:
    one, two = (memory(qwen, "hermes", resident=4 * qwen.dims.tokens_per_frame) for _ in range(2))
    for segment in range(3):
        append(one, images(4, seed=segment))
        one.compact()
    restore_snapshot(two, *take_snapshot(one))
    for target in (one, two):
        append(target, images(2, seed=9))
    for a, b in zip(one.cache.layers, two.cache.layers, strict=True):
        assert torch.equal(a.positions, b.positions)
        assert torch.equal(a.keys, b.keys)
    assert one.cache.num_bytes == one.expected_bytes()


LAYOUT = FrameLayout(torch.tensor([[0, 0, 0, 0], [0, 0, 1, 1], [0, 1, 0, 1]]), step=3, is_clip=True)


def test_more_clips_than_positions_overlap_in_order() -> None:
    """A token of each of a thousand clips: the model's limit holds, and order is kept."""
    clips = Clips(LAYOUT, clip_frames=8, limit=2000)
    ids = torch.cat([-1 - torch.arange(5), torch.arange(1000) * 4 * 8 + 5])
    (positions,) = clips.arrange([ids])
    assert int(positions.max()) < 2000 + LAYOUT.span(8)
    assert bool((positions[0, 1:] > positions[0, :-1]).all())
    roomy = Clips(LAYOUT, clip_frames=8, limit=10**6).arrange([ids])[0]
    assert int(roomy[0, 8] - roomy[0, 7]) == LAYOUT.span(8) == 22


def test_layers_end_alike_whatever_they_lost() -> None:
    clips = Clips(LAYOUT, clip_frames=2, limit=10**6)
    whole = torch.cat([torch.tensor([-1]), torch.arange(20)])
    without_newest = whole[whole < 16]
    only_prefix = whole[:1]
    first, second, third = clips.arrange([whole, without_newest, only_prefix])
    assert torch.equal(first[:, : second.shape[1]], second)
    assert int(first[0, 17]) == int(second[0, 16]) + 1 + (LAYOUT.span(2) - LAYOUT.step - 1)
    assert int(third[0, 0]) == int(first[0, 17]) - 1
    assert clips.arrange([only_prefix])[0].tolist() == [[0], [0], [0]]
