"""Which way a value gets better, by its name."""

from __future__ import annotations

import ast
import re

# Names that also losses have (dice, iou, ssim) say nothing.
_RISES = frozenset(
    "acc acc1 acc5 accuracy accuracies auc auroc auprc bleu f1 miou mrr ndcg precision "
    "psnr recall rouge top1 top5".split()
)
_FALLS = frozenset(
    "cer err error errors fid loss losses mae mse nll perplexity ppl rmse wer".split()
)
# What is turned around, what an adversary wants, and numbers of another kind.
_UNSURE = frozenset(
    "adv adversarial adversary attack attacker baseline change count critic delta diff "
    "difference disc discriminator domain drop epoch epochs fool forget forgetting gain "
    "gan gap hard hardest improvement inv inverse inverted leak leakage max maximum "
    "membership mia min minimum minus neg negative num one peak ratio reduction scale "
    "step steps std threshold time unlearn var variance weight weights worst".split()
)


def words_of(name: str) -> frozenset[str]:
    parts = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return frozenset(re.split(r"[^a-z0-9]+", parts.lower()))


def direction_of_name(name: str) -> int:
    """1: it gets better as it rises; -1: as it falls; 0: the name does not say."""
    words = words_of(name)
    rises, falls = bool(words & _RISES), bool(words & _FALLS)
    if rises == falls or words & _UNSURE:
        return 0
    return 1 if rises else -1


def last_name(value: ast.AST) -> str:
    """Of a variable, an attribute, or what an entry is of."""
    if isinstance(value, ast.Name):
        return value.id
    if isinstance(value, ast.Attribute):
        return value.attr
    if isinstance(value, ast.Subscript):
        return last_name(value.value)
    return ""
