"""MetaLayers are layers, as message-passing modules are, unless they just run those that they hold."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv, MessagePassing, MetaLayer

import walkwise as ww

M = 5
EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 4], [1, 0, 2, 1, 3, 2, 2]])


class Edges(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lin = nn.Linear(8 + width, 3)

    def forward(self, source, target, edge_attr, u, batch):
        return self.lin(torch.cat([source, target, edge_attr], 1)).relu()


class Nodes(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(7, 4)

    def forward(self, x, edge_index, edge_attr, u, batch):
        received = edge_attr.new_zeros(len(x), 3).index_add(0, edge_index[1], edge_attr)
        return self.lin(torch.cat([x, received], 1)).relu()


class Wrapped(MessagePassing):
    """The same block, put into a message-passing layer."""

    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x, edge_index, edge_attr):
        return self.block(x, edge_index, edge_attr)


class Stack(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        self.first, self.second, self.head = first, second, nn.Linear(4, 2)

    def forward(self, x, edge_index, edge_attr):
        x, edge_attr, *_ = self.first(x, edge_index, edge_attr)
        return self.head(self.second(x, edge_index, edge_attr)[0])


@pytest.mark.parametrize("rule", ["zero", "auto"])
def test_a_meta_layer_is_a_layer(rule):
    torch.manual_seed(0)
    first, second = MetaLayer(Edges(2), Nodes()).double(), MetaLayer(Edges(3), Nodes()).double()
    x, edge_attr = torch.randn(M, 4, dtype=torch.float64), torch.rand(7, 2, dtype=torch.float64)
    given = {"edge_attr": edge_attr, "index": 2, "target": 0, "rule": rule}
    model = Stack(first, second).double().eval()
    wrapped = Stack(Wrapped(first), Wrapped(second)).double().eval()
    wrapped.head = model.head
    chain, expected = ww.trace(model, x, EDGES, **given), ww.trace(wrapped, x, EDGES, **given)
    assert [layer.kind for layer in chain.layers] == ["MetaLayer", "MetaLayer"]
    walks = ww.enumerate_walks(expected)
    assert torch.equal(ww.enumerate_walks(chain), walks)
    torch.testing.assert_close(ww.walk_relevance(chain, walks), ww.walk_relevance(expected, walks))


def test_layers_inside_a_meta_layer_are_the_layers():
    class Convolved(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GCNConv(4, 4)

        def forward(self, x, edge_index, edge_attr, u, batch):
            return self.conv(x, edge_index)

    torch.manual_seed(0)
    model = Stack(MetaLayer(None, Convolved()), MetaLayer(None, Convolved())).eval()
    chain = ww.trace(model, torch.randn(M, 4), EDGES, edge_attr=None, index=2, target=0)
    assert [layer.kind for layer in chain.layers] == ["GCNConv", "GCNConv"]
