"""The adapter to torch_geometric.explain: relevance as masks that PyG's tools can work with."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.explain import Explanation, HeteroExplanation
from torch_geometric.explain.algorithm import ExplainerAlgorithm
from torch_geometric.explain.config import ExplanationType, MaskType, ModelMode, ModelReturnType
from torch_geometric.nn import HypergraphConv, MessagePassing

from walkwise.core.chain import RelevanceChain
from walkwise.errors import CoverageWarning, Described, InputError, described
from walkwise.explainer.ending import Ending
from walkwise.explainer.scores import per_row, selected
from walkwise.questions.marginals import at_nodes, edge_relevance, feature_relevance
from walkwise.questions.subgraphs import subgraph_relevance
from walkwise.rules import RuleLike, as_schedule
from walkwise.tracing import trace

#: From signed relevance to [0, 1], before division by the largest entry.
_MAPS: dict[str, Callable[[Tensor], Tensor]] = {"positive": lambda r: r.clamp(min=0), "magnitude": torch.abs}

_ALL_ZERO = (
    'All relevance is negative, so mask="positive" gives a mask that is zero everywhere: everything speaks against '
    'the explained class. Use mask="magnitude", or explain another class.'
)
_NO_LOGITS = "no softmax or sigmoid was found at the end of the model, so its output is explained, not the logits"


class SubgraphExplanation(Explanation):
    """An :class:`~torch_geometric.explain.Explanation` that keeps the chain it was computed from."""

    _chain: RelevanceChain  # kept out of the graph's attributes, which PyG prints, slices and moves

    @property
    def chain(self) -> RelevanceChain:
        """The traced prediction."""
        return self._chain


class SubgraphHeteroExplanation(HeteroExplanation):
    """The same for a :class:`~torch_geometric.explain.HeteroExplanation`, with masks and relevances by type."""

    @property
    def chain(self) -> RelevanceChain:
        """The traced prediction."""
        chain: RelevanceChain = self.__dict__["_chain"]
        return chain


class SubgraphLRPExplainer(ExplainerAlgorithm):
    """An algorithm for :class:`torch_geometric.explain.Explainer` whose masks come from the relevance of walks.

    The explained scalar is the sum, over the rows that ``index`` selects (all by default), of

    - multiclass classification: the row's logit in the column of its target,
    - binary classification: the row's logit, times -1 where the target is class 0,
    - regression: the row's outputs, or its output ``column``; the values of a target play no part.

    For models that return probabilities or log-probabilities, the logits before their last softmax or sigmoid are
    explained.

    Masks lie in [0, 1], as PyG's metrics and plots expect: with ``mask="positive"`` a mask is
    max(R, 0) / max R, with "magnitude" abs(R) / max abs(R). If everything makes the output of a regression negative,
    signs are flipped first. If there is nothing to divide by, as when everything speaks against the explained class,
    the mask is zero, with a warning. The explanation also has the signed relevances R behind the masks, and the chain:

    - ``node_relevance`` (M,) and ``feature_relevance`` (M, F) if a node mask is asked for. The mask comes from the
      first for "object", from the second for "attributes" and from its sum over nodes for "common_attributes".
    - ``edge_relevance`` (E,) if an edge mask is asked for: :func:`walkwise.edge_relevance` of the edges as you gave
      them, summed over layers. Steps along none of these edges are not counted: steps that stay at a node, by a root
      weight or a self-loop that the layer adds, and steps of layers that reach further than neighbours.
    - ``chain``, of the whole graph, for every other question. It does not change when an explanation is thresholded,
      cut to a subgraph or moved to another device.

    Args:
        rule: the LRP rule or rules, as for :func:`walkwise.trace`.
        mask: "positive" or "magnitude".
        position: the position at which a walk counts for a node: 0 (the input) to L, or None for the sum over all
            positions.
        alpha: instead, use R_α of the node alone as its relevance: walks that visit it, with a factor α for every step
            elsewhere.
        column: for regression, the output column to explain.
        fallback: as for :func:`walkwise.trace`.

    >>> import torch
    >>> from torch_geometric.explain import Explainer
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> explainer = Explainer(
    ...     GCN(in_channels=2, hidden_channels=8, num_layers=2, out_channels=3),
    ...     algorithm=SubgraphLRPExplainer(),
    ...     explanation_type="model",
    ...     node_mask_type="attributes",
    ...     edge_mask_type="object",
    ...     model_config=dict(mode="multiclass_classification", task_level="node", return_type="raw"),
    ... )
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> explanation = explainer(torch.ones(3, 2), edge_index, index=1)
    >>> explanation.node_mask.shape, explanation.edge_mask.shape
    (torch.Size([3, 2]), torch.Size([4]))
    >>> explanation.chain  # doctest: +ELLIPSIS
    RelevanceChain(2 layers, 3 nodes, output=...)
    """

    def __init__(
        self,
        *,
        rule: RuleLike = "auto",
        mask: str = "positive",
        position: int | None = 0,
        alpha: float | None = None,
        column: int | None = None,
        fallback: str = "autograd",
    ) -> None:
        super().__init__()
        if mask not in _MAPS:
            raise InputError(argument="mask", expected=f"one of {', '.join(map(repr, _MAPS))}", got=mask)
        if alpha is not None and position != 0:
            raise InputError(
                "alpha scores a node by walks that visit it anywhere.",
                argument="position",
                expected="left out where alpha is given",
                got=position,
                remedy="Give alpha or position, not both.",
            )
        self.schedule = as_schedule(rule)
        self.mask = mask
        self.position = position
        self.alpha = alpha
        self.column = column
        self.fallback = fallback

    def forward(
        self, model: nn.Module, x: Any, edge_index: Any, *, target: Tensor, index: Any = None, **kwargs: Any
    ) -> SubgraphExplanation | SubgraphHeteroExplanation:
        """Return the masks, the relevances behind them, and the chain; by type for a heterogeneous graph.

        Args:
            model: the model, called as ``model(x, edge_index, **kwargs)`` and left as it was.
            x: the node features, (M, F), or {type: (M_t, F_t)}.
            edge_index: the edges, (2, E), or {edge type: (2, E_t)}.
            target: the class of every row of the output.
            index: the rows to explain: a number, a tensor of them, or a boolean mask.
            **kwargs: passed to the model.
        """
        if isinstance(x, dict):
            return self._by_type(model, x, edge_index, target, index, kwargs)
        chain = self._chain(model, x, edge_index, target, index, kwargs)  # first: it may be that there are no layers
        steps = None if self.explainer_config.edge_mask_type is None else _steps(model, edge_index)
        explanation = SubgraphExplanation()
        explanation._chain = chain
        if (kind := self.explainer_config.node_mask_type) is not None:
            self._add_nodes(explanation, chain, x, kind)
        if steps is not None:
            explanation.edge_relevance = edge_relevance(chain, edge_index=steps)
            explanation.edge_mask = self._masked(explanation.edge_relevance, chain)
        return explanation

    def _by_type(
        self,
        model: nn.Module,
        x: dict[str, Tensor],
        edge_index: Any,
        target: Tensor,
        index: Any,
        kwargs: dict[str, Any],
    ) -> SubgraphHeteroExplanation:
        """The explanation of a heterogeneous graph; each mask is divided by its largest entry over all types."""
        config = self.explainer_config
        chain = self._chain(model, x, edge_index, target, index, kwargs)
        if config.edge_mask_type is not None:
            for edges in edge_index.values():
                _steps(model, edges)
        explanation = SubgraphHeteroExplanation()
        explanation.__dict__["_chain"] = chain
        assert chain.types is not None
        if (kind := config.node_mask_type) is not None:
            nodes, features = chain.types.split(self._node_relevance(chain)), feature_relevance(chain)
            explanation.set_value_dict("node_relevance", nodes)
            explanation.set_value_dict("feature_relevance", features)
            if kind == MaskType.object:
                masks = {name: relevance[:, None] for name, relevance in nodes.items() if name in x}
            else:
                common = kind == MaskType.common_attributes
                masks = {name: r.sum(0, keepdim=True) if common else r for name, r in features.items()}
            explanation.set_value_dict("node_mask", self._masked_alike(masks, chain))
        if config.edge_mask_type is not None:
            relevance = edge_relevance(chain)
            explanation.set_value_dict("edge_relevance", relevance)
            explanation.set_value_dict("edge_mask", self._masked_alike(relevance, chain))
        return explanation

    def _masked_alike(self, relevance: dict[Any, Tensor], chain: RelevanceChain) -> dict[Any, Tensor]:
        """Relevance by type as masks in [0, 1], all divided by the same number."""
        flat = self._masked(torch.cat([r.flatten() for r in relevance.values()]), chain)
        parts = torch.split(flat, [r.numel() for r in relevance.values()])
        return {name: part.view_as(r) for (name, r), part in zip(relevance.items(), parts, strict=True)}

    def supports(self) -> bool:
        """Whether the settings make sense; if not, the reason is logged."""
        mode, name = self.model_config.mode, type(self).__name__
        if self.column is not None and mode != ModelMode.regression:
            logging.error(
                f"'{name}' takes a 'column' for regression only (got mode '{mode.value}'). To explain a class other "
                "than the predicted one, give it as the target with explanation type 'phenomenon'"
            )
            return False
        if mode == ModelMode.regression and self.explainer_config.explanation_type == ExplanationType.phenomenon:
            logging.warning(
                f"'{name}' shares out the model's output: in regression, the target values of explanation type "
                "'phenomenon' play no part"
            )
        return True

    def _chain(
        self, model: nn.Module, x: Any, edge_index: Any, target: Tensor, index: Any, kwargs: dict[str, Any]
    ) -> RelevanceChain:
        """The chain of the explained scalar."""
        notes: list[str] = []

        def scalar(output: Any) -> Tensor:
            scores = output if self.model_config.return_type == ModelReturnType.raw else ending.logits(output)
            notes[:] = [_NO_LOGITS] if scores is None else []
            rows = per_row(output if scores is None else scores, self.model_config.mode, target, self.column)
            return selected(rows, index).sum()

        with Ending() as ending:
            chain = trace(model, x, edge_index, target=scalar, rule=self.schedule, fallback=self.fallback, **kwargs)
        for note in notes:
            warnings.warn(f"{note}.", CoverageWarning, stacklevel=6)  # where the Explainer was called
        return replace(chain, notes=(*chain.notes, *notes))

    def _add_nodes(self, explanation: Explanation, chain: RelevanceChain, x: Tensor, kind: MaskType) -> None:
        """Put the relevance of nodes and features into an explanation, and the node mask."""
        explanation.node_relevance = nodes = self._node_relevance(chain)
        features = feature_relevance(chain) if x.is_floating_point() else None
        if features is not None and features.shape == x.shape:
            explanation.feature_relevance = features
        elif kind != MaskType.object:
            got = described(x)
            raise InputError(
                f"With node_mask_type='{kind.value}', x must be floating-point numbers of shape (M, F), got {got}.",
                argument="x",
                expected="floating-point numbers of shape (M, F)",
                got=got,
                remedy="Ask for node_mask_type='object'.",
            )
        if kind == MaskType.object:
            explanation.node_mask = self._masked(nodes[:, None], chain)
        else:
            assert features is not None
            common = kind == MaskType.common_attributes
            explanation.node_mask = self._masked(features.sum(0, keepdim=True) if common else features, chain)

    def _node_relevance(self, chain: RelevanceChain) -> Tensor:
        if self.alpha is not None:
            bounds = torch.arange(chain.num_nodes + 1, device=chain.device)
            return subgraph_relevance(chain, (bounds[:-1], bounds), alpha=self.alpha)  # every node alone
        positions = range(chain.num_layers + 1) if self.position is None else [self.position]
        return torch.stack([at_nodes(chain, layer=position) for position in positions]).sum(0)

    def _masked(self, relevance: Tensor, chain: RelevanceChain) -> Tensor:
        """Relevance as a mask in [0, 1]; with signs flipped if everything makes a regression's output negative."""
        turned = self.model_config.mode == ModelMode.regression and chain.output < 0 and not bool((relevance > 0).any())
        kept = _MAPS[self.mask](-relevance if turned else relevance)
        largest = kept.max() if kept.numel() else kept.sum()
        if bool(largest > 0):
            return kept / largest
        if bool((relevance != 0).any()):
            warnings.warn(_ALL_ZERO, CoverageWarning, stacklevel=6)
        return torch.zeros_like(kept)


def _steps(model: nn.Module, edge_index: Any) -> Tensor:
    """The pairs (from, to) along which the layers send messages, in the order of the edges."""
    if not isinstance(edge_index, Tensor) or edge_index.layout != torch.strided:
        raise InputError(
            "An edge mask has one entry per column of edge_index, (2, E), and a sparse adjacency has no columns.",
            argument="edge_index",
            expected="a tensor of shape (2, E)",
            got=Described("a sparse adjacency"),
            remedy="Give edge_index, or ask for node masks only (edge_mask_type=None).",
        )
    layers = [module for module in model.modules() if isinstance(module, MessagePassing)]
    flows = {layer.flow for layer in layers}
    if len(flows) != 1 or any(isinstance(layer, HypergraphConv) for layer in layers):
        raise InputError(
            "A column of edge_index is not one step here: layers send messages in both directions (flow), or do not "
            "say in which direction, or it names a hyperedge.",
            argument="edge_mask_type",
            expected="None for a model like this",
            remedy="Ask for node masks only (edge_mask_type=None).",
        )
    pairs = torch.as_tensor(edge_index)
    return pairs if flows == {"source_to_target"} else pairs.flip(0)
