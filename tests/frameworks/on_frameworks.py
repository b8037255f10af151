"""The programs on frameworks: which there are, and whose Python runs them."""

import pathlib
import re
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent / "errors"))

from catalogue import Error

ERRORS = [
    Error(
        "peft_756",
        "huggingface/peft#756",
        "a head that the adapters' configuration does not name stays as it was drawn",
        'LoraConfig(...) without modules_to_save=["classifier"] in adapted()',
        0,
    ),
    Error(
        "acc_963",
        "huggingface/accelerate#963",
        "the scheduler steps with each accumulated batch, four times too fast",
        "schedule.step() in train(), on a scheduler that prepare() did not get",
        0,
    ),
    Error(
        "trl_2617",
        "huggingface/trl#2617",
        "a subclass's loss is a mean over its batch: gradients are four times too large",
        "SmoothedSFT.compute_loss, without loss_is_scaled_for_ga = False in the class",
        0,
    ),
    Error(
        "hf_5987",
        "huggingface/transformers#5987",
        "the decoder never reads the start token, and no label is a first word",
        "decoder_input_ids = target[:, :-1], labels = target[:, 1:] in Collate",
        0,
    ),
    Error(
        "pl_591",
        "Lightning-AI/pytorch-lightning#591",
        "what a generator's loss left in the discriminator is added to its gradients",
        "update() of BeeGan, which calls zero_grad() after its own step only",
        1,
    ),
    Error(
        "timm_1235",
        "huggingface/pytorch-image-models#1235",
        "a schedule laid out in updates is moved on in batches, four times too fast",
        "scheduler.step_update(num_updates=done) in lr_scheduler_step",
        1,
    ),
    Error(
        "pyg_1499",
        "pyg-team/pytorch_geometric#1499",
        "indices grow by the other graph's nodes: graphs of a batch mix",
        "Pair.__inc__, which tests for the wrong name",
        0,
    ),
    Error(
        "dfs_1864",
        "huggingface/diffusers#1864",
        "the running mean overwrites its bound: its decay sticks at a half",
        "self.decay = rate in RunningMean.step",
        8,
    ),
    Error(
        "skorch_349",
        "skorch-dev/skorch#349",
        "a setting of the loss is changed between calls of partial_fit: a new Adam",
        "net.set_params(criterion__label_smoothing=...) in soften()",
        30,
    ),
    Error(
        "sb3_553",
        "DLR-RM/stable-baselines3#553",
        "the target network is put into training mode with the policy",
        "self.train(mode) in OwnPolicy.set_training_mode",
        0,
    ),
    Error(
        "lsam_1",
        "luca-medeiros/lightning-sam#1",
        "parts of the model are called past the wrapper's forward: ranks part",
        "by_parts(model, ...) in train() instead of model(...)",
        0,
    ),
    Error(
        "st_3189",
        "huggingface/sentence-transformers#3189",
        "with few answers, copies of the right one count among the wrong ones",
        'batch_sampler="batch_sampler" in settings()',
        0,
    ),
]
# What tools/frameworks.sh does not install everywhere.
_PACKAGES = re.compile(
    r"^(?:from|import) (timm|torchvision|deepspeed|ignite|skorch|gpytorch|keras|fastai|"
    r"monai|torchrl|stable_baselines3|sentence_transformers)\b",
    re.MULTILINE,
)


def python() -> pathlib.Path | None:
    """That of tools/frameworks.sh; None: it was not run."""
    environments = pathlib.Path(sys.executable).parents[2]
    found = sorted(
        environments.glob("frameworks-*/complete"), key=lambda it: it.stat().st_mtime
    )
    return found[-1].parent / "bin/python" if found else None


def runnable(folder: str) -> list[pathlib.Path]:
    """The programs of healthy/ or errors/ whose frameworks are there."""
    interpreter = python()
    if interpreter is None:
        return []
    scripts = sorted((FOLDER / folder).glob("*.py"))
    wanted = {name for s in scripts for name in _PACKAGES.findall(s.read_text())}
    there = {name for name in wanted if _has(interpreter, name)}
    return [s for s in scripts if set(_PACKAGES.findall(s.read_text())) <= there]


def _has(interpreter: pathlib.Path, package: str) -> bool:
    look = (
        f"import importlib.util as u, sys; sys.exit(u.find_spec('{package}') is None)"
    )
    return subprocess.run([interpreter, "-c", look]).returncode == 0
