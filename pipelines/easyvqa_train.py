"""Train the easy-VQA model on the training split of the package, and on nothing else.

    python -m pipelines.easyvqa_train tower
    python -m pipelines.easyvqa_train decoder --code --minutes 12      # at the same time
    python -m pipelines.easyvqa_train decoder --init runs/easyvqa/code/decoder.safetensors
    python -m pipelines.easyvqa_train assemble

The package is the installed ``easy-vqa``, or a copy of it (``--package DIR``).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from pathlib import Path

import torch

from hermes_like.easyvqa.package import package_folder, read_split
from pipelines.easyvqa_training.decoder import (
    DecoderRun,
    code_bank,
    easyvqa_decoder_config,
    tower_bank,
    train_decoder,
)
from pipelines.easyvqa_training.pictures import load_pictures
from pipelines.easyvqa_training.tower import TowerRun, train_tower
from pipelines.easyvqa_training.words import save_tokenizer
from pipelines.sprites_training.assemble import assemble

RUNS = Path("runs/easyvqa")
WEIGHTS = Path("hermes_like/easyvqa/weights")


def build_parser() -> argparse.ArgumentParser:
    """The parser of the commands."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--package", type=Path, help="copy of easy-vqa; default: the installed one")
    commands = parser.add_subparsers(dest="command", required=True)
    tower = commands.add_parser("tower", help="train the vision tower")
    tower.add_argument("--out", type=Path, default=RUNS / "tower")
    tower.add_argument("--steps", type=int, default=2500)
    tower.add_argument("--seed", type=int, default=0)
    tower.add_argument("--init", type=Path, help="weights to go on from")
    tower.add_argument("--muon-rate", type=float, default=0.015)
    tower.add_argument("--adamw-rate", type=float, default=1.5e-3)
    decoder = commands.add_parser("decoder", help="train the decoder")
    decoder.add_argument("--code", action="store_true", help="on the code with noise, not pictures")
    decoder.add_argument("--tower", type=Path, default=RUNS / "tower" / "tower.safetensors")
    decoder.add_argument("--init", type=Path, help="checkpoint to go on from")
    decoder.add_argument("--out", type=Path, help="default: runs/easyvqa/code or .../decoder")
    decoder.add_argument("--minutes", type=float, default=25.0)
    decoder.add_argument("--steps", type=int, help="exactly so many, instead of --minutes")
    decoder.add_argument("--decay-share", type=float, default=0.45, help="of the time")
    decoder.add_argument("--short-share", type=float, default=0.2, help="short streams at first")
    decoder.add_argument("--seed", type=int, default=0)
    whole = commands.add_parser("assemble", help="write the stock checkpoint, in bfloat16")
    whole.add_argument("--tower", type=Path, default=RUNS / "tower" / "tower.safetensors")
    whole.add_argument("--decoder", type=Path, default=RUNS / "decoder" / "decoder.safetensors")
    whole.add_argument("--out", type=Path, default=WEIGHTS)
    return parser


def _decoder(args: argparse.Namespace) -> dict[str, float]:
    run = DecoderRun(
        args.out or RUNS / ("code" if args.code else "decoder"),
        minutes=args.minutes,
        steps=args.steps,
        seed=args.seed,
        decay_share=args.decay_share,
        short_share=args.short_share,
        init=args.init,
    )
    if args.code:
        return train_decoder(run, code_bank())
    pictures = load_pictures(read_split(package_folder(args.package), "train"))
    return train_decoder(run, tower_bank(args.tower, pictures))


def _tower(args: argparse.Namespace) -> dict[str, float]:
    pictures = load_pictures(read_split(package_folder(args.package), "train"))
    run = TowerRun(
        args.out,
        steps=args.steps,
        seed=args.seed,
        muon_rate=args.muon_rate,
        adamw_rate=args.adamw_rate,
        init=args.init,
    )
    return train_tower(run, pictures)


def _assemble(args: argparse.Namespace) -> dict[str, float]:
    size_bytes = assemble(
        args.tower,
        args.decoder,
        args.out,
        text_config=easyvqa_decoder_config(),
        write_tokenizer=save_tokenizer,
        dtype=torch.bfloat16,
    )
    sums = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(args.out.iterdir())
        if path.suffix in (".json", ".safetensors")
    ]
    (args.out / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    return {"weights_bytes": size_bytes}


def main(argv: list[str] | None = None) -> int:
    """Run one command; the last line printed is JSON."""
    args = build_parser().parse_args(argv)
    torch.set_num_threads(1)
    started = time.monotonic()
    result: dict[str, object] = {"command": args.command}
    result |= {"tower": _tower, "decoder": _decoder, "assemble": _assemble}[args.command](args)
    result["minutes"] = round((time.monotonic() - started) / 60, 1)
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
