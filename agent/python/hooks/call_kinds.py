"""Which calls findings about the graph of a loss are about: their names, and the nodes
that they leave in the graph.

Each row is a finding whose cause is one call, or stands among its arguments. Others
have no row: no line is better than a wrong one.
"""

from __future__ import annotations

from typing import NamedTuple

from _traincheck.graph_nodes import FUSED_ATTENTION, NLL, SOFTMAX, VIEWS

_NO_WORDS: frozenset[str] = frozenset()


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


class Kind(NamedTuple):
    """Calls of one sort."""

    nodes: tuple[str, ...]  # how the names of those begin that they leave
    functions: frozenset[str]  # of torch, of its functional, of tensors
    modules: frozenset[str] = _NO_WORDS  # classes of torch.nn that do it
    holders: frozenset[str] = _NO_WORDS  # those that are given such a module
    dim: int | None = None  # the place of the dimension among a function's arguments
    whole: bool = False  # without a dimension it is taken over all of them
    sizes: bool = False  # are its arguments the sizes of the result?
    beside: frozenset[str] = _NO_WORDS  # one of these is called in the same function


class Search(NamedTuple):
    """What a finding is about: the nearest node of these kinds."""

    kinds: tuple[Kind, ...]
    # Shown is where a module is called, where it is made if that is in vain.
    called: bool = True
    made: bool = True
    # Calls that count, but that are not the cause where they are the only ones.
    hidden: frozenset[str] = _NO_WORDS
    # One of these is given, as more than a name.
    given: frozenset[str] = _NO_WORDS


_ATTENTIONS = _words(
    """MultiheadAttention Transformer TransformerDecoderLayer
    TransformerEncoderLayer"""
)
_STACKS = _words("TransformerDecoder TransformerEncoder")
_SOFTMAX = Kind(
    tuple(SOFTMAX),
    _words("gumbel_softmax softmax softmin"),
    _words("Softmax Softmax2d Softmin"),
    dim=1,
)
# The same, within torch's own layers, too.
_WEIGHTS = _SOFTMAX._replace(modules=_SOFTMAX.modules | _ATTENTIONS, holders=_STACKS)
_FUSED = Kind(
    (FUSED_ATTENTION,),
    _words("scaled_dot_product_attention"),
    modules=_ATTENTIONS,
    holders=_STACKS,
)
_SIGMOID = Kind(("SigmoidBackward0",), _words("sigmoid sigmoid_"), _words("Sigmoid"))
_TANH = Kind(("TanhBackward0",), _words("tanh tanh_"), _words("Tanh"))
_SOFTPLUS = Kind(("SoftplusBackward0",), _words("softplus"), _words("Softplus"))
_RELU = Kind(
    ("ReluBackward0", "ThresholdBackward0"),
    _words("relu relu_ threshold"),
    _words("ReLU Threshold"),
)
_DROPOUT = Kind(
    ("NativeDropoutBackward0",),
    _words("dropout dropout1d dropout2d dropout_"),
    _words("Dropout Dropout1d Dropout2d"),
)
_LOG_SOFTMAX = Kind(
    ("LogSoftmaxBackward0",),
    _words("cross_entropy log_softmax"),
    _words("CrossEntropyLoss LogSoftmax"),
    dim=1,
)
_CROSS_ENTROPY = Kind(
    tuple(NLL), _words("cross_entropy nll_loss"), _words("CrossEntropyLoss NLLLoss")
)
_NLL = Kind(tuple(NLL), _words("nll_loss"), _words("NLLLoss"))
_BINARY = Kind(
    ("BinaryCrossEntropyWithLogits",),
    _words("binary_cross_entropy_with_logits"),
    _words("BCEWithLogitsLoss"),
)
_CTC = Kind(("CtcLoss", "CudnnCtcLoss"), _words("ctc_loss"), _words("CTCLoss"))
_KL = Kind((), _words("kl_div"), _words("KLDivLoss"))
_RECURRENCE = Kind(("MkldnnRnnLayer", "CudnnRnn"), _NO_WORDS, _words("GRU LSTM RNN"))
# On a processor these go through the steps as a loop over a tensor does.
_LOOP = Kind(("UnbindBackward",), _words("unbind"), _words("GRU LSTM RNN"))
_NORM = Kind(("LinalgVectorNorm",), _words("norm vector_norm"), dim=2, whole=True)
_ROOT = Kind(("SqrtBackward0",), _words("sqrt"))
_MEAN = Kind(("MeanBackward",), _words("mean"), dim=1, whole=True)
_RESHAPE = Kind(tuple(VIEWS), _words("reshape view"), sizes=True)
_NOISE = Kind(
    ("ExpBackward0",), _words("exp"), beside=_words("normal normal_ randn randn_like")
)
_PACKING = Kind((), _words("pack_padded_sequence"))
_GRADIENT = Kind((), _words("grad"))

_LOSS = Search((_CROSS_ENTROPY,))
_ATTENTION = Search((_FUSED, _WEIGHTS), hidden=_SOFTMAX.functions | _SOFTMAX.modules)
_OF_WEIGHTS = Search((_WEIGHTS,), called=False, hidden=_ATTENTIONS)
_WEIGHED = Search((_CROSS_ENTROPY, _BINARY), given=_words("pos_weight weight"))

SEARCHES = {
    "loss.attends_across_texts": _ATTENTION,
    "loss.attends_over_queries": _OF_WEIGHTS,
    "loss.attends_to_padding": _ATTENTION,
    "loss.averages_padding": Search((_MEAN,)),
    "loss.balances_twice": _WEIGHED,
    "loss.contrasts_with_itself": _LOSS,
    "loss.ctc_blank": Search((_CTC,)),
    "loss.ctc_of_scores": Search((_CTC,)),
    "loss.favours_frequent": _WEIGHED,
    "loss.in_low_precision": _LOSS._replace(made=False),
    "loss.kl_of_probabilities": Search((_KL,)),
    "loss.kl_of_target": Search((_KL,), made=False),
    "loss.learns_padding": _LOSS._replace(called=False),
    "loss.mask_inverted": _ATTENTION,
    "loss.mask_of_ones": _ATTENTION,
    "loss.mixes_rows": Search((_RESHAPE,)),
    "loss.no_logarithms": Search((_NLL,)),
    "loss.noise_by_variance": Search((_NOISE,)),
    "loss.normalised_twice": Search((_SOFTMAX, _SIGMOID)),
    "loss.one_class": Search((_SOFTMAX, _LOG_SOFTMAX)),
    "loss.over_samples": Search((_LOG_SOFTMAX,)),
    "loss.packs_other_lengths": Search((_PACKING,)),
    "loss.penalty_of_parts": Search((_NORM, _ROOT)),
    "loss.penalty_without_graph": Search((_GRADIENT,)),
    "loss.pools_padding": Search((_MEAN,)),
    "loss.repeats_input": _LOSS._replace(made=False),
    "loss.samples_as_steps": Search(
        (_RECURRENCE, _LOOP, _FUSED, _WEIGHTS),
        called=False,
        hidden=_FUSED.functions
        | _LOOP.functions
        | _SOFTMAX.functions
        | _SOFTMAX.modules,
    ),
    "loss.scores_dropped": Search((_DROPOUT,)),
    "loss.scores_rectified": Search((_RELU,)),
    "loss.sees_later_only": _ATTENTION,
    "loss.sees_targets": _ATTENTION,
    "loss.several_labels": _LOSS,
    "loss.targets_no_probabilities": Search((_BINARY,)),
    "loss.targets_out_of_reach": Search((_RELU, _SIGMOID, _SOFTMAX, _SOFTPLUS, _TANH)),
    "loss.weighs_by_frequency": _WEIGHED,
    "loss.weighs_over_samples": _OF_WEIGHTS,
}
