"""Train the bundled sprites model: vision tower, decoder, and both as one stock checkpoint.

    python -m pipelines.train_sprites tower                      # about an hour of one core
    python -m pipelines.train_sprites decoder --steps 4000       # at the same time, on the code
    python -m pipelines.train_sprites bank                       # the tower's features
    python -m pipelines.train_sprites decoder --bank runs/sprites/bank.safetensors --processes 2
    python -m pipelines.train_sprites assemble

Every stage goes on from its last checkpoint when started again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import torch

from pipelines.sprites_training import tower
from pipelines.sprites_training.assemble import assemble
from pipelines.sprites_training.decoder import DecoderRun, train_decoder
from pipelines.sprites_training.fill_bank import fill_bank
from pipelines.sprites_training.learning_curve import plot_learning_curve

RUNS = Path("runs/sprites")
WEIGHTS = Path("hermes_like/sprites/weights")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the four commands."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    tower.add_arguments(commands.add_parser("tower", help="train the vision tower"))
    _add_bank(commands.add_parser("bank", help="encode rendered frames with the tower"))
    _add_decoder(commands.add_parser("decoder", help="train the decoder"))
    _add_assemble(commands.add_parser("assemble", help="write the stock checkpoint"))
    return parser


def _add_bank(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tower", type=Path, default=RUNS / "tower" / "tower.safetensors")
    parser.add_argument("--out", type=Path, default=RUNS / "bank.safetensors")
    parser.add_argument("--renderings", type=int, default=4, help="of every lone sprite")
    parser.add_argument("--pairs", type=int, default=5_000, help="frames with two sprites")
    parser.add_argument("--seed", type=int, default=11)


def _add_decoder(parser: argparse.ArgumentParser) -> None:
    defaults = DecoderRun(RUNS / "decoder")
    parser.add_argument("--out", type=Path, default=defaults.folder)
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--steps", type=int, default=defaults.steps)
    parser.add_argument("--decay-share", type=float, default=defaults.decay_share)
    parser.add_argument("--stop-at", help="clock time HH:MM of the last step, instead of --steps")
    parser.add_argument("--decay-at", help="clock time HH:MM at which the rate starts to fall")
    parser.add_argument("--rate", type=float, default=defaults.rate)
    parser.add_argument("--step-tokens", type=int, default=defaults.step_tokens)
    parser.add_argument("--attention-weight", type=float, default=defaults.attention_weight)
    parser.add_argument("--processes", type=int, default=defaults.processes)
    parser.add_argument("--bank", type=Path, help="tower features; default: the symbolic code")
    parser.add_argument("--init", type=Path, help="folder of a stock checkpoint to start from")
    parser.add_argument("--noise", type=float, default=defaults.noise, help="on the code")


def _add_assemble(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tower", type=Path, default=RUNS / "tower" / "tower.safetensors")
    parser.add_argument("--decoder", type=Path, default=RUNS / "decoder" / "decoder.safetensors")
    parser.add_argument("--out", type=Path, default=WEIGHTS)


def _train_decoder(args: argparse.Namespace) -> dict[str, object]:
    run = DecoderRun(
        folder=args.out,
        seed=args.seed,
        steps=args.steps,
        stop_at=args.stop_at,
        decay_share=args.decay_share,
        decay_at=args.decay_at,
        rate=args.rate,
        step_tokens=args.step_tokens,
        attention_weight=args.attention_weight,
        processes=args.processes,
        bank=args.bank,
        init=args.init,
        noise=args.noise,
    )
    train_decoder(run)
    plot_learning_curve(run.folder / "log.jsonl", run.folder / "curve.png")
    return {"folder": str(run.folder)}


def main(argv: list[str] | None = None) -> int:
    """Run one command; the last line printed is JSON."""
    args = build_parser().parse_args(argv)
    torch.set_num_threads(1)
    started = time.monotonic()
    result: dict[str, object] = {"command": args.command}
    if args.command == "tower":
        tower.run_tower(args)
    elif args.command == "bank":
        explained = fill_bank(
            args.tower, args.out, renderings=args.renderings, num_pairs=args.pairs, seed=args.seed
        )
        result["explained_variance"] = round(explained, 4)
    elif args.command == "decoder":
        result.update(_train_decoder(args))
    else:
        result["weights_bytes"] = assemble(args.tower, args.decoder, args.out)
    result["minutes"] = round((time.monotonic() - started) / 60, 1)
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
