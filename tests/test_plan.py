"""The capacity planner against encoded blocks, stored records and the real cache."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hermes_like.cli import run
from hermes_like.codec import CODECS
from hermes_like.codec.base import KeyValues
from hermes_like.config import HermesConfig, StoreConfig
from hermes_like.errors import ConfigError
from hermes_like.index import SegmentIndex
from hermes_like.models import load_model
from hermes_like.plan import (
    CODEC_BITS,
    CONTENT_KEY_BYTES,
    Assumptions,
    ModelShape,
    block_bytes,
    disk_pictures_bytes,
    disk_segment_bytes,
    example_head,
    host_segment_bytes,
    index_cost,
    make_plan,
    table_cost,
    usual_picture_bytes,
)
from hermes_like.presets import load_config
from hermes_like.tiers import (
    HostTier,
    Keyframe,
    KeyframeRecord,
    SegmentRecord,
    TierChain,
)
from hermes_like.tiers.disk import open_disk
from hermes_like.tiers.fingerprint import Fingerprint
from hermes_like.timeline import Timeline

SPRITES = ModelShape(8, 2, 32, 4, 4)
SEVEN_B = ModelShape(28, 4, 128, 196, 2)
DTYPES = {4: torch.float32, 2: torch.bfloat16}


@pytest.mark.parametrize("codec", CODECS.names())
@pytest.mark.parametrize(
    ("heads", "tokens", "head_dim", "itemsize"),
    [(2, 16, 32, 4), (4, 196, 128, 2), (1, 3, 20, 2), (3, 7, 33, 4)],
)
def test_blocks_have_the_planned_size(
    codec: str, heads: int, tokens: int, head_dim: int, itemsize: int
) -> None:
    generator = torch.Generator().manual_seed(1)
    keys, values = (
        torch.randn(heads, tokens, head_dim, generator=generator).to(DTYPES[itemsize])
        for _ in range(2)
    )
    data = CODECS.get(codec)().encode(KeyValues(keys, values))
    assert len(data) == block_bytes(codec, heads, tokens, head_dim, itemsize)


def test_every_codec_can_be_planned() -> None:
    assert set(CODECS.names()) == {"raw", *CODEC_BITS}
    with pytest.raises(ConfigError, match="did you mean 'int8'"):
        block_bytes("int9", 1, 1, 1, 2)


def test_shares_of_the_raw_size() -> None:
    """About what the codecs are known for: a half, three eighths, a quarter, plus scales."""
    raw = block_bytes("raw", 4, 3136, 128, 2)
    shares = {name: block_bytes(name, 4, 3136, 128, 2) / raw for name in CODEC_BITS}
    assert shares == pytest.approx({"int8": 0.516, "k8v4": 0.438, "int4": 0.313}, abs=0.002)


def stored(config: HermesConfig, shape: ModelShape) -> SegmentRecord:
    """A segment as it is stored, with random keys and values."""
    tokens = config.memory.segment_frames * shape.tokens_per_frame
    codec = CODECS.get(config.store.codec)()
    size = shape.num_kv_heads, tokens, shape.head_dim
    block = KeyValues(*(torch.randn(size, dtype=DTYPES[shape.itemsize]) for _ in range(2)))
    return SegmentRecord(example_head(config, shape), (codec.encode(block),) * shape.num_layers)


@pytest.mark.parametrize("codec", ["raw", "int8", "int4"])
def test_segments_and_pictures_take_what_was_planned(codec: str, tmp_path: Path) -> None:
    store = StoreConfig(codec=codec, disk_bytes=32 * 2**20, min_free_bytes=0)
    config = HermesConfig(store=store)
    record = stored(config, SPRITES)
    host = HostTier(2**24)
    host.put(record)
    assert host.used_bytes == host_segment_bytes(config, SPRITES)
    pictures = KeyframeRecord(record.head, (Keyframe(0, bytes(5000)),))
    disk = open_disk(tmp_path, fingerprint=Fingerprint.of(model="test"), config=store)
    disk.segments.put(record)
    disk.keyframes.put(pictures)
    disk.close()  # trims volumes to what was used
    for name, expected in (
        ("kv", disk_segment_bytes(config, SPRITES)),
        ("keyframes", disk_pictures_bytes(config, SPRITES, 5000)),
    ):
        (volume,) = tmp_path.glob(f"{name}-*.vol")
        assert volume.stat().st_size - 4096 == expected, "one record behind a header of one page"


@pytest.mark.parametrize("count", [1, 5, 64, 65])
def test_index_and_tables_take_what_was_planned(count: int, tmp_path: Path) -> None:
    """Segments watched one after the other, in the index and the tables of a real chain."""
    store = StoreConfig(disk_bytes=32 * 2**20, keyframe_bytes=8 * 2**20, min_free_bytes=0)
    config = load_config("sprites").model_copy(update={"store": store})
    example = example_head(config, SPRITES)
    heads = [replace(example, segment_id=i) for i in range(count)]
    num_heads = len(config.retrieval.heads)
    index, timeline = SegmentIndex(num_heads, SPRITES.head_dim), Timeline()
    disk = open_disk(tmp_path, fingerprint=Fingerprint.of(model="test"), config=store)
    chain = TierChain(HostTier(2**24), disk.segments, disk.keyframes, on_close=disk.close)
    for head in heads:
        index.add(head)
        timeline.add(head)
        chain.put(SegmentRecord(head, (b"kv",)), KeyframeRecord(head, (Keyframe(0, b"jpeg"),)))
    chain.flush()
    planned = index_cost(config, SPRITES, count), table_cost(config, count)
    assert (index.num_bytes, timeline.num_bytes + chain.table_bytes) == planned
    chain.close()


def test_the_formula_is_the_one_of_the_cache() -> None:
    dims = load_model("sprites").dims
    shape = ModelShape(
        dims.num_layers,
        dims.num_kv_heads,
        dims.head_dim,
        dims.tokens_per_frame,
        dims.dtype.itemsize,
    )
    assert shape == SPRITES
    assert shape.kv_bytes_per_token == dims.kv_bytes_per_token == 4096
    assert SEVEN_B.kv_bytes_per_token == 57344


def test_reach_wear_and_time_follow_from_bytes() -> None:
    config = load_config("llava-onevision-7b", {"store.disk_bytes": str(2**40)}, env={})
    assumed = Assumptions(70_000, disk_gb_s=2, link_gb_s=10, search_gb_s=5, prefill_tokens_s=1000)
    plan = make_plan(config, SEVEN_B, cameras=3, days=30, assumptions=assumed)
    disk = plan.tiers["disk"]
    assert plan.segment_s == 32
    assert disk.cap_bytes == 2**40 - config.store.keyframe_bytes
    assert disk.reach_s == disk.cap_bytes // disk.bytes_per_segment * 32
    assert disk.wanted_bytes == disk.bytes_per_segment * 30 * 86400 // 32
    assert disk.bytes_per_token == pytest.approx(0.516 * 57344, rel=0.004)
    per_s = 3 * (disk.bytes_per_segment + plan.tiers["keyframes"].bytes_per_segment) / 32
    assert plan.disk_write_mb_s == pytest.approx(per_s / 1e6)
    assert plan.disk_write_tb_year == pytest.approx(per_s * 31_557_600 / 1e12)
    assert plan.total_bytes["disk"] == 3 * disk.cap_bytes
    assert plan.device_bytes == config.memory.device_tokens * 57344 * 3 // 2
    parts = plan.ttft_s
    assert parts["question"] == config.memory.question_tokens / 1000
    fetched = config.retrieval.max_frames * plan.tiers["host"].bytes_per_segment
    assert parts["disk_read"] == pytest.approx(fetched / 2e9)
    assert parts["from_disk"] - parts["from_host"] == pytest.approx(parts["disk_read"])
    assert parts["from_disk"] == pytest.approx(
        sum(value for name, value in parts.items() if not name.startswith("from_"))
    )


def test_without_a_disk_nothing_is_written() -> None:
    config = HermesConfig(store=StoreConfig(disk_bytes=0))
    plan = make_plan(config, SPRITES, cameras=1, days=1, assumptions=Assumptions(1000))
    assert plan.disk_write_mb_s == 0
    assert plan.tiers["disk"].reach_s == plan.tiers["keyframes"].reach_s == 0
    assert plan.tiers["host"].reach_s > 0


def test_pictures_are_about_as_large_as_assumed() -> None:
    """A picture with much detail is smaller, and one of noise larger, than the guess."""
    from hermes_like.tiers.keyframes import encode_picture

    guess = usual_picture_bytes(HermesConfig())
    rng = np.random.default_rng(1)
    noise = rng.integers(0, 256, (360, 640, 3), dtype=np.uint8)
    smooth = np.linspace(0, 255, 640, dtype=np.uint8)[None, :, None].repeat(360, 0).repeat(3, 2)
    assert len(encode_picture(smooth)) < guess < len(encode_picture(noise))


def test_command_for_people_and_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["plan", "--fps", "0.5", "--cameras", "2", "--days", "7"]
    assert run(arguments) == 0
    out = capsys.readouterr().out
    assert "2 x 8 layers x 2 kv heads x 32 head_dim x 4 bytes = 4096 bytes per token" in out
    assert "nothing was measured" in out
    assert run([*arguments, "--json", "--set", "store.codec=int4"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["cameras"], plan["days"], plan["segment_s"], plan["codec"]) == (2, 7, 8.0, "int4")
    assert plan["assumptions"]["disk_gb_s"] == 1.0


def test_command_knows_random_shapes_and_presets(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["--model", "random:llava-onevision-7b"],
        ["--preset", "llava-onevision-7b"],
    ):
        assert run(["plan", *arguments, "--json"]) == 0
        plan = json.loads(capsys.readouterr().out)
        assert plan["kv_bytes_per_token"] == 57344
        assert plan["shape"]["tokens_per_frame"] == 196


def test_command_reads_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = {"num_hidden_layers": 36, "num_attention_heads": 16, "hidden_size": 2048}
    content = {"text_config": {**text, "num_key_value_heads": 2}, "vision_config": {}}
    (tmp_path / "config.json").write_text(json.dumps(content))
    assert run(["plan", "--model", str(tmp_path)]) == 1
    assert "has no image_size; use --tokens-per-frame" in capsys.readouterr().err
    arguments = ["plan", "--model", str(tmp_path), "--tokens-per-frame", "196", "--json"]
    assert run(arguments) == 0
    assert json.loads(capsys.readouterr().out)["kv_bytes_per_token"] == 36864


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--fps", "null"], 2, "source.sample_fps"),
        (["--model", "random:llava-onevision-8b"], 2, "did you mean"),
        (["--model", "nobody/nothing"], 1, "no configuration of 'nobody/nothing'"),
        (["--set", "store.codec=zip"], 2, "unknown codec 'zip'"),
    ],
)
def test_command_names_what_is_wrong(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", *arguments]) == code
    assert message in capsys.readouterr().err


def test_planning_the_bundled_model_does_not_load_torch() -> None:
    code = (
        "import sys\nfrom hermes_like.cli import run\nassert run(['plan', '--json']) == 0\n"
        "assert 'torch' not in sys.modules, 'torch was loaded'"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert CONTENT_KEY_BYTES >= 16
