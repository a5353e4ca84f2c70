"""Orders added up anew at every step are those that are kept up to date."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data

import walkwise as ww
from chains import chain_of
from small_runs import Pooled, some_graphs
from walkwise.questions.graphs import as_graphs
from walkwise.questions.walk_tables import listed_walks
from walkwise.search.contributions import from_table
from walkwise.search.greedy import Criterion, greedy_orders
from walkwise.search.table_orders import orders_from_table


def both(chain, mode, alphas, graphs=None):
    criterion = Criterion(mode, alphas, as_graphs(chain, graphs), 1e-9)
    listed = listed_walks(chain, "visits")
    steps = range(criterion.graphs.width)
    return orders_from_table(listed, criterion, torch.device("cpu")), greedy_orders(
        from_table(listed.here, criterion), criterion, steps
    )


@pytest.mark.parametrize("mode", ["activation", "pruning"])
@pytest.mark.parametrize("seed", range(4))
def test_one_graph(seed, mode):
    found, expected = both(chain_of(seed, 7), mode, (0.0, 0.3, 1.0))
    assert len(found) == len(expected) == 1
    np.testing.assert_array_equal(found[0], expected[0])


@pytest.mark.parametrize("mode", ["activation", "pruning"])
@pytest.mark.parametrize("tied", [False, True])
def test_graphs_of_several_sizes_whose_nodes_are_mixed(mode, tied):
    graphs = some_graphs(9)
    if tied:  # every node as every other of a ring: the lowest id comes first
        ring = torch.stack([torch.arange(6), torch.arange(1, 7) % 6])
        graphs = [Data(torch.ones(6, 3, dtype=torch.float64), torch.cat([ring, ring.flip(0)], 1)), *graphs]
    data = Batch.from_data_list(graphs)
    order = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(0))
    x, batch, edges = data.x[order], data.batch[order], torch.argsort(order)[data.edge_index]
    chain = ww.trace(Pooled().double().eval(), x, edges, batch=batch, target=1)
    found, expected = both(chain, mode, (0.1, 0.5), batch)
    assert [part.shape[1] for part in found] == torch.bincount(batch).tolist()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
