"""Which graphs to use for training, early stopping and testing."""

from __future__ import annotations

import torch
from torch import Tensor

from walkwise.errors import InputError

#: The share of the paper's training graphs that decide when to stop.
VAL_SHARE = 0.1


def balanced_split(y: Tensor, count: int, *, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """(train, val, test) of a draw with equally many training graphs of every class, as in the paper's appendix H.

    The paper names how many graphs it drew, not which; the draw here is by seed. It has no validation graphs: a tenth
    of the training graphs, equally many per class, is set aside to decide when to stop.

    Args:
        y: labels: (G,).
        count: number of training graphs, those set aside included.
        seed: of the draw.

    >>> y = torch.tensor([0] * 12 + [1] * 30)
    >>> train, val, test = balanced_split(y, 20)
    >>> y[train].bincount().tolist(), y[val].bincount().tolist(), y[test].bincount().tolist()
    ([9, 9], [1, 1], [2, 20])
    """
    generator = torch.Generator().manual_seed(seed)
    classes = [(y == label).nonzero().flatten() for label in sorted(set(y.tolist()))]
    drawn = [members[torch.randperm(len(members), generator=generator)] for members in classes]
    each = count // len(classes) if classes else 0
    fewest = min(map(len, classes), default=0)
    if not 0 < each <= fewest:
        raise InputError(
            f"Expected at least {max(each, 1)} graphs of every class for {count} to train on, got {fewest}.",
            argument="count",
            expected=f"a number of training graphs that {fewest} graphs of a class suffice for",
            got=count,
            remedy="Are all files of the data set complete?",
        )
    train, val = set_aside(torch.cat([members[:each] for members in drawn]), y, seed=seed)
    return train, val, torch.cat([members[each:] for members in drawn]).sort().values


def set_aside(members: Tensor, y: Tensor, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """(train, val): a tenth of each class among the given graphs goes to val, by seed.

    Args:
        members: numbers of graphs: (T,).
        y: labels of all graphs: (G,).
        seed: of the draw.
    """
    generator = torch.Generator().manual_seed(seed)
    train, val = [], []
    for label in sorted(set(y[members].tolist())):
        own = members[y[members] == label]
        own = own[torch.randperm(len(own), generator=generator)]
        cut = max(1, round(VAL_SHARE * len(own)))
        val.append(own[:cut])
        train.append(own[cut:])
    return torch.cat(train).sort().values, torch.cat(val).sort().values
