"""What torch functions do to rows, by their plain names.

A new function is described here, once; whoever follows rows puts together the kinds that it means. Functions of single
entries of one tensor are not listed: their handler says so (``Word.pointwise``).
"""

#: Functions of several tensors, entry by entry.
ENTRYWISE = frozenset({
    "add", "sub", "rsub", "mul", "div", "addcmul", "addcdiv", "lerp", "maximum", "minimum", "fmax", "fmin", "pow",
    "atan2", "hypot", "xlogy",
})  # fmt: skip

# -- functions that move entries

#: Another shape, with the entries in their order.
RESHAPING = frozenset({
    "view", "reshape", "flatten", "ravel", "unflatten", "unsqueeze", "squeeze", "view_as", "reshape_as",
})  # fmt: skip
#: The dimensions in another order.
TRANSPOSING = frozenset({"t", "transpose", "permute", "movedim"})
#: Entries that are repeated.
REPEATING = frozenset({"expand", "expand_as", "broadcast_to", "repeat", "repeat_interleave", "tile"})
#: Rows that are looked up by number.
READING = frozenset({"getitem", "index_select", "gather", "take_along_dim"})
#: Numbers of another type.
CASTING = frozenset({"to", "float", "double", "half", "bfloat16", "type", "type_as"})
#: Functions that sort: numbers that stand for nodes do not show which row went where.
ORDERING = frozenset({
    "sort", "msort", "topk", "kthvalue", "median", "nanmedian", "mode", "quantile", "nanquantile", "quantiles",
})  # fmt: skip

# -- functions that mix what is within a row, and perhaps rows

#: Products, which may add rows up with a matrix.
PRODUCTS = frozenset({
    "matmul", "rmatmul", "sparse_mm", "mv", "bmm", "einsum", "tensordot", "inner", "chain_matmul", "linalg_multi_dot",
    "addmm", "addmv", "baddbmm", "addbmm",
})  # fmt: skip
#: Functions that divide by what they make of a row, or of all rows.
NORMALISING = frozenset({
    "softmax", "log_softmax", "softmin", "gumbel_softmax", "normalize", "layer_norm", "batch_norm", "instance_norm",
    "group_norm", "rms_norm",
})  # fmt: skip
#: Functions that attend to other rows.
ATTENDING = frozenset({"multi_head_attention_forward", "scaled_dot_product_attention"})
#: Recurrent networks along a sequence, and one step of them.
SEQUENCES = frozenset({"gru", "lstm", "rnn_tanh", "rnn_relu"})
_CELLS = frozenset({"gru_cell", "lstm_cell", "rnn_tanh_cell", "rnn_relu_cell"})
#: Functions whose result has the rows of their first tensor, whatever is mixed inside; and those that may mix rows.
AS_FIRST = frozenset({"linear", "bilinear"}) | NORMALISING | ATTENDING | SEQUENCES | _CELLS
OVER_ROWS = ATTENDING | SEQUENCES

# -- functions that add rows up

#: At other rows, which are given by number.
BY_NUMBER = frozenset({"scatter_add", "index_add", "scatter_reduce", "index_reduce"})
#: Along the first dimension alone: those that may add up, and those that add up rows that follow each other.
PUTTING = frozenset({"index_put", "unsafe_index_put"})
IN_ORDER = frozenset({"segment_reduce", "embedding_bag"})
#: All that may add rows up at other rows; ``propagate`` is message passing by its closed form.
ADDING = BY_NUMBER | PUTTING | IN_ORDER | {"scatter", "propagate"}
#: Along a whole dimension.
REDUCING = frozenset({"sum", "mean", "max", "min", "amax", "amin", "logsumexp", "std", "var", "prod", "median"})
#: Of those near a place, along the last dimensions.
CONVOLVING = frozenset({"conv1d", "conv2d", "conv3d"})
