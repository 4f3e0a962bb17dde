"""Networks that nobody chose are whole ones, and the same for all who draw them."""

import torch

from benchmarks.random_networks import DRAWS, random_networks
from probes.microtrain.models import build_model


def test_a_seed_draws_the_same_networks_of_every_kind() -> None:
    networks = random_networks(16, 1)
    assert networks == random_networks(16, 1)
    assert [one.model for one in networks] != [other.model for other in random_networks(16, 2)]
    assert {row.family for row in networks} == {f"random {kind}" for kind, _ in DRAWS}
    assert len({row.name for row in (*networks, *random_networks(16, 2))}) == 32


def test_what_is_drawn_runs() -> None:
    for row in random_networks(24, 3):
        workload = row.workload()
        built = build_model(workload.model)
        batch = built.make_batch(2, None)
        with torch.no_grad():
            assert torch.isfinite(built.loss(built.forward(built.module, batch), batch)), row.name
