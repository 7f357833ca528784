"""Muon: momentum whose matrices are made nearly orthogonal before they are applied."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def orthogonalize(matrices: torch.Tensor, num_iterations: int = 5) -> torch.Tensor:
    """Return matrices with the singular vectors of the given ones and singular values near 1.

    Args:
        matrices: ``[count, rows, columns]`` float32.
        num_iterations: Newton-Schulz iterations.
    """
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if is_tall else matrices
    x = x / (x.flatten(1).norm(dim=1)[:, None, None] + 1e-7)
    a, b, c = _COEFFICIENTS
    for _ in range(num_iterations):
        gram = x @ x.mT
        poly = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.baddbmm(x, poly, x, beta=a)
    return x.mT if is_tall else x


class Muon(torch.optim.Optimizer):
    """Nesterov momentum with orthogonalised updates; matrices of one shape are batched."""

    def __init__(
        self,
        params: Iterable[torch.nn.Parameter],
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        num_iterations: int = 5,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__(params, defaults)
        self.num_iterations = num_iterations

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Apply one update from the gradients."""
        for group in self.param_groups:
            by_shape: dict[tuple[int, int], list[torch.nn.Parameter]] = defaultdict(list)
            for p in group["params"]:
                if p.grad is not None:
                    by_shape[(p.shape[0], p[0].numel())].append(p)
            for shape, params in by_shape.items():
                self._update(params, shape, group)

    def _update(
        self, params: list[torch.nn.Parameter], shape: tuple[int, int], group: dict[str, float]
    ) -> None:
        momentum = group["momentum"]
        directions = []
        for p in params:
            state = self.state[p]
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(p)
            assert p.grad is not None
            state["momentum"].lerp_(p.grad, 1 - momentum)
            directions.append(p.grad.lerp(state["momentum"], momentum).view(shape))
        updates = orthogonalize(torch.stack(directions), self.num_iterations)
        scale = group["lr"] * max(1.0, shape[0] / shape[1]) ** 0.5
        for p, update in zip(params, updates, strict=True):
            p.mul_(1 - group["lr"] * group["weight_decay"])
            p.add_(update.reshape(p.shape), alpha=-scale)
