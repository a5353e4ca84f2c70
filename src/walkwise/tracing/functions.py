"""Entry-by-entry functions and normalisations: h = z · [h / z], statistics held constant."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from walkwise.core.operators import Operator, Scale
from walkwise.rules import divide
from walkwise.tracing import vocabulary
from walkwise.tracing.flow import Apply, signed
from walkwise.tracing.reading import NotClosedError, Reader, flat
from walkwise.tracing.tape import Op, Ref

_SQUASHED = "{} as h = z · [h / z] turns the sign of relevance where z < 0; if it is the output, explain the logit"


class Functions(Reader):
    """Functions of single entries, and normalisations."""

    def _elementwise(self, op: Op) -> None:
        if op.name == "relu" and not self.builder.graph:
            return self._relu(op)
        refs = [a for a in flat((op.args, op.kwargs)) if isinstance(a, Ref)]
        if len(refs) != 1 or op.outputs[0] is None:
            return self._gradient(op)
        flow = self.flows[refs[0].slot]

        def slope(z: Tensor) -> Tensor:
            if op.name == "relu":
                return _is_positive(z)
            if op.name in vocabulary.SINGULAR:
                return divide(value, z)
            near = torch.where(z == 0, -1e-6, z)
            image: Tensor = op.run(lambda _: near.view(shape))[0].reshape(z.shape)
            return image / near

        shape, value = self.values[refs[0].slot].shape, self.value(op.outputs[0])
        if value.shape != flow.value.shape:
            return self._gradient(op)
        if op.name == "sigmoid" and op.call is None:
            self.remarks.add(_SQUASHED.format("sigmoid"))
        flow = self.builder.activated(flow, value, slope)
        self.write(op, flow.but(gate=vocabulary.GATE_RANK.get(op.name, 0)))

    def _relu(self, op: Op) -> None:
        """The same, straight on, for what most activations are."""
        flow, output = self.flows[op.inputs[0]], op.outputs[0]
        assert output is not None
        self.write(op, self.builder.activated(flow, self.value(output), _is_positive))

    def _softmax(self, op: Op) -> None:
        """As an output, the logit scaled; in a product, a gate."""
        if op.call is None:
            self.remarks.add(_SQUASHED.format("softmax"))
        self._rescaled(op, lambda z, h: divide(h, z), gate=2)

    def _log_softmax(self, op: Op) -> None:
        """The logit; the normaliser is a statistic and held constant."""
        self.remarks.add("log_softmax's normaliser is held constant, so that the logit is explained")
        self._rescaled(op, lambda z, h: torch.ones_like(z))

    def _layer_norm(self, op: Op) -> None:
        """Mean and variance are held constant."""
        shape = op.args[1] if len(op.args) > 1 else op.kwargs["normalized_shape"]
        weight = op.args[2] if len(op.args) > 2 else op.kwargs.get("weight")
        eps = op.args[4] if len(op.args) > 4 else op.kwargs.get("eps", 1e-5)
        dims = tuple(range(-len(shape), 0))

        def factor(z: Tensor, h: Tensor) -> Tensor:
            natural = self.values[op.inputs[0]]
            scale = (natural.var(dims, unbiased=False, keepdim=True) + eps).rsqrt().expand(natural.shape)
            scaled: Tensor = scale if weight is None else scale * weight.detach()
            return scaled.reshape(z.shape)

        self._rescaled(op, factor)

    def _normalize(self, op: Op) -> None:
        """The norm is held constant."""
        given = dict(zip(("p", "dim", "eps"), op.args[1:], strict=False)) | op.kwargs

        def factor(z: Tensor, h: Tensor) -> Tensor:
            natural = self.values[op.inputs[0]]
            norm = natural.norm(given.get("p", 2.0), given.get("dim", 1), keepdim=True)
            share: Tensor = norm.clamp(min=given.get("eps", 1e-12)).reciprocal()
            return share.expand_as(natural).reshape(z.shape)

        self._rescaled(op, factor)

    def _rescaled(self, op: Op, factor: Callable[[Tensor, Tensor], Tensor], gate: int = 0) -> None:
        """h = factor ⊙ z + constant, entry by entry."""
        if len(op.inputs) != 1 or op.outputs[0] is None:
            return self._gradient(op)
        flow = self.read(op, op.inputs[0])
        value = self.value(op.outputs[0])
        scaled = self.builder.scaled(value, [(flow, 0, factor(flow.value, value).detach())])
        self.write(op, scaled.but(gate=gate))

    def _batch_norm(self, op: Op) -> None:
        """In evaluation an affine map per neuron, folded into the linear map before it."""
        mean, var = op.args[1], op.args[2]
        names = ("weight", "bias", "training", "momentum", "eps")
        given = dict(zip(names, op.args[3:], strict=False)) | op.kwargs
        weight, bias, eps = given.get("weight"), given.get("bias"), given.get("eps", 1e-5)
        if mean is None or given.get("training", False):
            return self._standardised(op, weight, eps)
        scale = (var + eps).rsqrt() if weight is None else weight * (var + eps).rsqrt()
        shift = -mean * scale if bias is None else bias - mean * scale
        flow = self.read(op, op.inputs[0], within=True)
        if not self.builder.graph and flow.value.shape[1] != scale.numel():
            raise NotClosedError
        shape = (1, -1, *[1] * (self.values[op.inputs[0]].dim() - 2))
        scale, shift = scale.detach().view(shape), shift.detach().view(shape)
        make: Callable[[Tensor], Operator] = Scale if not self.builder.graph else lambda f: Apply(lambda p: p * f)
        self.combine(op, [(flow, signed(make, scale, len(flow.parts) == 2))], shift)
        self._fold_constant(op)

    def _fold_constant(self, op: Op) -> None:
        """The biases of a stretch and a batch normalisation's shift are one bias once folded."""
        slot = op.outputs[0]
        assert slot is not None
        flow = self.flows[slot]
        if flow.rule is not None and flow.constant is not None:
            self.flows[slot] = flow.but(held=flow.rule.hold(flow.constant))

    def _standardised(self, op: Op, weight: Tensor | None, eps: float) -> None:
        """Batch statistics (no running ones are kept): held constant."""

        def factor(z: Tensor, h: Tensor) -> Tensor:
            scale = (z.var(0, unbiased=False, keepdim=True) + eps).rsqrt()
            return (scale if weight is None else scale * weight.detach()).expand_as(z)

        self._rescaled(op, factor)


def _is_positive(z: Tensor) -> Tensor:
    return (z > 0).to(z.dtype)
