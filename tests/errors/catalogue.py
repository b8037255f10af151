"""Silent errors that others met, and the programs that reproduce them."""

# size: a table, of which each row has some lines

from dataclasses import dataclass


@dataclass(frozen=True)
class Error:
    name: str  # of the program, without .py
    source: str
    what: str
    cause: str  # the call or line that is to be blamed, named in advance
    # The first optimizer step, from 0, whose forward, update or file is not what it
    # should be, in a run without --steps. What is wrong before training counts to 0.
    trigger_step: int
    arguments: tuple = ()


ERRORS = [
    Error(
        "so_60335387",
        "Stack Overflow 60335387",
        "gradients are never cleared: each step uses the sum of all so far",
        (
            "the training loop of main(), which calls backward and step and never "
            "zero_grad"
        ),
        1,
    ),
    Error(
        "ptf_84911",
        "discuss.pytorch.org, thread 84911",
        "the optimizer holds frozen parameters only; statistics drift, nothing trains",
        (
            "the loop in main() that sets requires_grad, which leaves out the head "
            "that Adam gets"
        ),
        0,
    ),
    Error(
        "pt_115607",
        "pytorch/pytorch#115607",
        "a compiled optimizer step that was traced without gradients does nothing",
        (
            "optimizer.step() in main(): the specialised step, made where the "
            "optimizer is constructed"
        ),
        0,
    ),
    Error(
        "pt_104336",
        "pytorch/pytorch#104336",
        "a data-parallel model is moved after it was wrapped and reduces no more",
        "move_and_back(ddp.module) after DistributedDataParallel(net) in train()",
        0,
    ),
    Error(
        "lt_725",
        "Lightning-AI/lightning-thunder#725",
        "one layer leaves the autocast region and runs in full precision",
        "the replaced model.gate.forward in main(), called inside torch.autocast",
        0,
    ),
    Error(
        "tf_33844",
        "huggingface/transformers#33844",
        "attention drops out in evaluation",
        (
            "scaled_dot_product_attention(dropout_p=...) in FusedAttention.forward, "
            "called by the validation"
        ),
        2,
    ),
    Error(
        "tf_29903",
        "huggingface/transformers#29903",
        "a checkpoint contains a damaged tensor",
        "torch.save(safe_state(...)) in main(): safe_state spoils a tensor of its copy",
        3,
    ),
    Error(
        "so_67180955",
        "Stack Overflow 67180955",
        "all workers of a loader draw the same random numbers",
        "worker_init_fn=seed_all_alike of the DataLoader in main()",
        0,
    ),
    Error(
        "ds_1801",
        "deepspeedai/DeepSpeed#1801",
        (
            "tensor-parallel ranks clip different sets of gradients; replicated "
            "weights drift apart"
        ),
        (
            "ClippingOptimizer.step() (optimizer.step() in train()): gradients() "
            "leaves replicated ones out on the second rank"
        ),
        0,
    ),
    Error(
        "ds_5794",
        "deepspeedai/DeepSpeed#5794",
        "ranks enter the expert exchange with buffers of different sizes",
        (
            "Exchange.apply(slots) in ExpertLayer.forward, sized by the rank's own "
            "number of tokens"
        ),
        4,
    ),
    Error(
        "mmp_702",
        "open-mmlab/mmpretrain#702",
        "frozen stages train, since only train() freezes them",
        (
            "Runner.run_epoch, which never calls model.train(), so that frozen_stages"
            " of Backbone has no effect"
        ),
        0,
    ),
    Error(
        "pt_51800",
        "pytorch/pytorch#51800",
        "spectral normalisation is evaluated before any training forward",
        (
            "the call of evaluate(model, ...) before the first step in main(): "
            "model.eval() with raw estimates"
        ),
        0,
    ),
    Error(
        "pt_84803",
        "pytorch/pytorch#84803",
        "a broken link loses weights in the broadcast of DDP's construction",
        (
            "the transfer in DDP(Net()) in train() (hardware): the second rank's "
            "weights are not the first's"
        ),
        0,
    ),
    Error(
        "pt_96600",
        "pytorch/pytorch#96600",
        "a broken link loses the tail of an averaged bucket on one rank",
        (
            "the reduction in loss.backward() of train() (hardware): the second "
            "rank's gradients are incomplete"
        ),
        3,
    ),
    Error(
        "bc2_86",
        "baichuan-inc/Baichuan2#86",
        "a broken link loses activations between devices",
        "x.to(device, copy=True) in SpreadModel.forward (hardware)",
        4,
    ),
    Error(
        "tf_17877",
        "huggingface/transformers#17877",
        "projections are initialised once for each ancestor",
        (
            "parameter.data.normal_() in TinyGPT._init_weights, applied in the "
            "constructor, before training"
        ),
        0,
    ),
    Error(
        "tf_23723",
        "huggingface/transformers#23723",
        "generation exceeds max_new_tokens where the prompt was cut",
        (
            "pipeline(prompt, max_new_tokens=...) in sample(): max_length is computed"
            " before the prompt is cut"
        ),
        13,
    ),
    Error(
        "tf_34204",
        "huggingface/transformers#34204",
        "a processor makes one sample of a batch; the loss broadcasts",
        (
            "processor(list(texts), images=[[...]]) in collate(): fifty inputs come "
            "back as one"
        ),
        0,
    ),
    Error(
        "x_jxmnop",
        "@jxmnop on X, after the published list",
        "the forward goes past the data-parallel wrapper",
        "self.model.module(queries, documents) in Trainer.embeddings",
        0,
    ),
    Error(
        "tf_33455",
        "huggingface/transformers#33455",
        "the number of steps is rounded down and the last epoch is cut",
        "max_steps in Trainer.__init__; the loop in Trainer.train() returns early",
        15,
    ),
    Error(
        "ac_2665",
        "huggingface/accelerate#2665 (cause: #3256, pytorch/pytorch#107843)",
        "the optimizer holds parameters that sharding replaced",
        "make_optimizer(model) before accelerator.prepare(model, ...) in main()",
        0,
    ),
    Error(
        "ds_6770",
        "deepspeedai/DeepSpeed#6770 (related: #3718)",
        "the optimizer holds a head that is not in the model any more",
        "adapt(model, ...) after torch.optim.Adam(model.parameters()) in main()",
        0,
    ),
    Error(
        "ds_6771",
        "deepspeedai/DeepSpeed#6771 (related: #5489)",
        "parameters that were frozen before initialisation are not in the checkpoint",
        (
            "engine.save_checkpoint(folder) in main(): module_state_dict has "
            "trainable parameters only"
        ),
        7,
    ),
    Error(
        "ds_6714",
        "deepspeedai/DeepSpeed#6714",
        "stages of a heterogeneous model issue different collectives and stall",
        (
            "gradient_norm(...) in train(): all_gather on the stage with experts, "
            "all_reduce on the other"
        ),
        4,
    ),
    Error(
        "ds_6772",
        "deepspeedai/DeepSpeed#6772 (fixed by PR #6847)",
        "the engine overwrites an attribute by which experts are placed",
        "Engine(model, optimizer, 'id') in main(): setattr(module, 'id', number)",
        0,
    ),
    Error(
        "ds_6089",
        "deepspeedai/DeepSpeed#6089 (same mechanism: #6809)",
        "ranks exchange different numbers of slots and one waits",
        "Router.forward: the capacity of the rank alone; the wait is in Slots.exchange",
        3,
    ),
    Error(
        "hf_34191",
        "huggingface/transformers#34191",
        "accumulated micro-batches count alike, whatever their number of tokens",
        "loss / len(micro_batches) of per-micro-batch means in Trainer.accumulate",
        0,
    ),
    Error(
        "trl_976",
        "huggingface/trl#976 (also huggingface/transformers#23530)",
        "the padding token is the end token, and the end is never supervised",
        (
            "tokenizer.pad_token_id = tokenizer.eos_token_id in main(), masked by the"
            " collator"
        ),
        0,
    ),
    Error(
        "pl_9606",
        "Lightning-AI/pytorch-lightning#9606",
        "gradients are clipped while they are still scaled",
        "clip_grad_norm_ in Trainer.training_step, before the scaler has unscaled",
        0,
    ),
    Error(
        "neox_1259",
        "EleutherAI/gpt-neox#1259",
        "hooks that sum the layer norms' gradients stay with replaced parameters",
        "register_norm_hooks(model) before Engine(model) in setup()",
        0,
    ),
    Error(
        "ao_4915",
        "pytorch/ao#4915",
        "Adam's counter in bfloat16 stops at 256",
        (
            "state['step'] += 1 in LeanAdamW.update (optimizer.step()), made under "
            "set_default_dtype(bfloat16)"
        ),
        256,
    ),
    Error(
        "pl_21079",
        "Lightning-AI/pytorch-lightning#21079 (issue #20953)",
        "an asynchronous checkpoint holds later weights than it says",
        (
            "plugin.save_checkpoint(checkpoint, path) in main(): live tensors go to "
            "the thread"
        ),
        14,
    ),
    Error(
        "nemorl_3312",
        "NVIDIA-NeMo/RL#3312",
        "all checkpoints but the first hold the first one's weights",
        (
            "writer.save(policy.state_dict(), ...) in main(): PlannedWriter keeps its"
            " buffer"
        ),
        11,
    ),
    Error(
        "am_763",
        "NVIDIA-NeMo/Automodel#763",
        "optimizer and scheduler states are read and not loaded on resume",
        "checkpointer.load_optimizer(...) in main(), without load_state_dict",
        12,
    ),
    Error(
        "lly_892",
        "lightly-ai/lightly-train#892",
        "the moving average's counter starts at zero after a resume",
        (
            "run.load(path) in main(): ModelEMA.updates is a plain integer, in no "
            "state dict"
        ),
        14,
    ),
    Error(
        "hf_4398",
        "huggingface/transformers#4398 (also Lightning-AI/pytorch-lightning#224)",
        "a DistributedSampler is never told the epoch",
        "the epoch loop of Trainer.train, without sampler.set_epoch(epoch)",
        5,
    ),
    Error(
        "kf_51",
        "KempnerInstitute/KempnerForge#51",
        "a resumed run repeats the first batches of its epoch",
        "manager.save(step, **parts) in main(), without the loader",
        7,
    ),
    Error(
        "hfd_5360",
        "huggingface/datasets#5360",
        "all ranks stream the same rows",
        "DataLoader(stream) in train(), without stream.split(rank, world)",
        0,
    ),
    Error(
        "ray_45614",
        "ray-project/ray#45614",
        "the target network does not begin as a copy",
        "Agent.__init__: qf_target gets no weights of qf",
        0,
    ),
    Error(
        "osp_186",
        "PKU-YuanGroup/Open-Sora-Plan#186",
        "a validation leaves the averaged weights in the model",
        "log_validation in main(): ema.copy_to without ema.restore",
        8,
    ),
    Error(
        "timm_1831",
        "huggingface/pytorch-image-models#1831",
        "the averaged model is updated once in an epoch",
        "ema.update(model) after the loop of train_one_epoch instead of in it",
        0,
    ),
    Error(
        "hf_31412",
        "huggingface/transformers#31412",
        "dropout masks are equal on all ranks",
        (
            "set_seed(40) in train(), the same on all ranks and never followed by one"
            " by rank"
        ),
        0,
    ),
    Error(
        "pt_36382",
        "pytorch/pytorch#36382 (follows #22248)",
        (
            "synchronised batch normalisation averages unequal batches as equal ones "
            "in the backward"
        ),
        (
            "SyncNormFunction.backward (in loss.backward()): means are not weighted "
            "by batch sizes"
        ),
        4,
    ),
    Error(
        "acc_3154",
        "huggingface/accelerate#3154 (also verl-project/verl#7835)",
        "tied weights come apart when they are materialised",
        "param_init_fn(module) for each module in materialise(), without tie_weights()",
        0,
    ),
    Error(
        "fl_545",
        "ServiceNow/Fast-LLM#545 (issue #542)",
        "normalisation layers fall into the group with weight decay",
        (
            "make_parameter(...) in Normalization.__init__ without "
            "weight_decay=False; seen in the groups of AdamW"
        ),
        0,
    ),
    Error(
        "hf_45111",
        "huggingface/transformers#45111",
        "the router's balance loss takes the softmax twice",
        (
            "TopKRouter.forward returns probabilities as router_logits; "
            "load_balancing_loss applies softmax"
        ),
        0,
    ),
    Error(
        "tt_1593",
        "pytorch/torchtitan#1593",
        "recomputed expert layers count their tokens twice",
        "tokens_per_expert.add_ in MoE.forward inside checkpoint(self.inner, x)",
        0,
    ),
    Error(
        "liger_1298",
        "linkedin/Liger-Kernel#1298 (also #968)",
        "a fused loss scales all gradients by the first token's factor",
        "FusedLinearCrossEntropy.backward: grad * grad_output[0]",
        0,
    ),
    Error(
        "mmd_14",
        "shubhamagarwal92/mmd#14 (also MILVLG/mcan-vqa#26)",
        "the training goes on in eval mode after an evaluation",
        "evaluate(model, ...) in main(): model.eval() and no model.train() afterwards",
        8,
    ),
    Error(
        "pl_2551",
        "Lightning-AI/pytorch-lightning#2551",
        "a frozen backbone is put into training mode after a validation",
        "model.train() at the end of Trainer.run_evaluation",
        6,
    ),
    Error(
        "ltx_67",
        "Lightricks/LTX-Video-Trainer#67 (also huggingface/diffusers#3954)",
        "the schedule is stepped once for each process and ends in half of the run",
        "total_iters of LinearLR in train(), stepped by AcceleratedScheduler.step",
        1,
    ),
    Error(
        "bertc_2",
        "illiterate/BertClassifier#2 (also bkitano/llama-from-scratch#5)",
        "a classifier ends in a softmax and is trained with cross-entropy",
        "torch.softmax in NewsClassifier.forward, before CrossEntropyLoss in main()",
        0,
    ),
    Error(
        "flmrcm_10",
        "guopengf/FL-MRCM#10",
        "the adversarial part of the generator's loss is a number without gradient",
        "loss_adv_g.detach().item() in LocalUpdate.generator_loss, before the sum",
        0,
    ),
    Error(
        "tt_3575",
        "pytorch/torchtitan#3575 (also bytetriper/RAE#67)",
        "gradients are cleared in each micro-batch: only the last one counts",
        "optimizer.zero_grad() in PolicyTrainer.forward_backward, called for each part",
        0,
    ),
    Error(
        "gs_1366",
        "awslabs/graphstorm#1366 (also VGraphRNN/VGRNN#4)",
        "gradients are clipped after the step",
        "self.clip(max_grad_norm) after optimizer.step() in NodePredictionTrainer.fit",
        0,
    ),
    Error(
        "texar_72",
        "asyml/texar-pytorch#72 (also pytorch/pytorch#715)",
        "layers in a plain list are no parameters of the model and never train",
        (
            "self._layers = list(layers) in MergeLayer.__init__; the optimizer in "
            "main() does not get them"
        ),
        0,
    ),
    Error(
        "sfda_18",
        "CSCYQJ/MICCAI23-ProtoContra-SFDA#18",
        "a layer is frozen by an attribute of the module and goes on training",
        "module.requires_grad = False in freeze_by_attribute, called by adapt()",
        16,
    ),
    Error(
        "peft_3580",
        "huggingface/peft#3580",
        (
            "loading a second adapter makes the first, frozen one trainable, and "
            "not itself"
        ),
        (
            "make_trainable(self.active_adapter) in AdaptedModel.load_adapter, "
            "called in main()"
        ),
        0,
    ),
    Error(
        "causvid_19",
        "tianweiy/CausVid#19 (reason: pytorch/ao#1124)",
        (
            "steps are rounded away, since the weights are bfloat16 and have no "
            "master copy"
        ),
        (
            "self.model.to(torch.bfloat16) in Distillation.__init__; "
            "optimizer.step() leaves most weights as they were"
        ),
        0,
    ),
    Error(
        "parlai_4384",
        "facebookresearch/ParlAI#4384 (came in with #4242)",
        "the warm-up never ends and the rate stays at its peak",
        "LinearDecayWithWarmup.is_warming_up compares the rate with 1",
        7,
    ),
    Error(
        "pycls_21",
        "facebookresearch/pycls#21 (also mindee/doctr#840)",
        "a data set normalises its own arrays in place, once more in each epoch",
        (
            "Shapes.__getitem__, which hands self.images[index] to prepare() "
            "without a copy"
        ),
        6,
    ),
    Error(
        "hg_44",
        "princeton-vl/pytorch_stacked_hourglass#44",
        "the validation runs in training mode and enters the batch statistics",
        "Pose.make_network('valid', ...): self.net.train() for both phases",
        7,
    ),
    Error(
        "pypots_667",
        "WenjieDu/PyPOTS#667 (also pytorch/tutorials#188)",
        "the best weights are kept by reference, and the last ones are saved",
        (
            "self.best_model_dict = self.model.state_dict() in Estimator.fit, "
            "without a copy; seen in load_state_dict and torch.save at its end"
        ),
        47,
    ),
    Error(
        "funasr_3472",
        "modelscope/FunASR#3472",
        "ranks exchange the first accumulated micro-batch instead of the last one",
        "Trainer.sync_context: no_sync() for batch_idx % accum_grad != 0",
        0,
    ),
    Error(
        "tt_166",
        "pytorch/torchtitan#166 (also haotian-liu/LLaVA#1440)",
        "ranks begin with different weights, and only gradients are averaged",
        (
            "torch.manual_seed(300 + rank) before NoShard(TinyLlama(), ...) in "
            "train(), without a broadcast"
        ),
        0,
    ),
    Error(
        "pml_710",
        "KevinMusgrave/pytorch-metric-learning#710",
        "trained parameters of the loss are not reduced over the ranks",
        (
            "criterion = ArcFaceLoss(...) in train(), not wrapped in "
            "DistributedDataParallel"
        ),
        0,
    ),
    Error(
        "parcae_10",
        "sandyresearch/parcae#10 (also karpathy/llm.c#792)",
        "ranks shuffle the files differently before each takes its share",
        "seed + rank in train(), given to TokenFiles, which takes files[rank::world]",
        0,
    ),
    Error(
        "vis4mer_4",
        "md-mohaiminul/ViS4mer#4 (related: allenai/allennlp#2895)",
        (
            "a plateau scheduler in mode min gets an accuracy and lowers the rate "
            "as it rises"
        ),
        (
            "ReduceLROnPlateau(optimizer, ...) in main(), without mode='max', where "
            "scheduler.step(accuracy) is called"
        ),
        9,
    ),
    Error(
        "ignite_2590",
        "pytorch/ignite#2590 (also HiLab-git/SSL4MIS#77)",
        "the averaged teacher keeps the batch statistics it began with",
        (
            "EMAHandler.update, which averages parameters() and leaves the buffers of "
            "ema_model, which is always in eval mode"
        ),
        0,
    ),
    Error(
        "ex_1029",
        "pytorch/examples#1029",
        "a checkpoint with a prefix in all names is loaded non-strictly, as nothing",
        (
            "encoder.load_state_dict(state, strict=False) in load_encoder(): all names "
            "of the file begin with 'model.'"
        ),
        10,
    ),
    Error(
        "adaint_12",
        "ImCharlesY/AdaInt#12 (also zshn25/DINOv2_mmseg#1)",
        "an initialisation of all modules wipes the pretrained weights of the backbone",
        (
            "self.init_weights(...) in Enhancer.__init__, after "
            "self.backbone.load_state_dict(...)"
        ),
        0,
    ),
    Error(
        "lightly_1528",
        "lightly-ai/lightly#1528 (related: cellarium-ai/cellarium-ml#184)",
        "gathered features give back only the gradient of the rank's own loss",
        (
            "GatherLayer.backward (in loss.backward()): the rank's slice is not summed "
            "over the ranks"
        ),
        0,
    ),
    Error(
        "hf_29285",
        "huggingface/transformers#29285 (also #25681)",
        "autocast computes the angles of rotary positions in bfloat16",
        (
            "the matrix product in RotaryEmbedding.forward, inside torch.autocast of "
            "main()"
        ),
        0,
    ),
    Error(
        "tosica_11",
        "JackieHanLab/TOSICA#11",
        "the split has no effect: the rows of the validation are trained",
        (
            "train.dataset and valid.dataset in make_loaders(), the whole data set, "
            "given to the loaders"
        ),
        0,
    ),
    Error(
        "forge_571",
        "meta-pytorch/torchforge#571 (also AI4Finance-Foundation/ElegantRL#243)",
        "the ratio of new to old policy is always one, and nothing is clipped",
        (
            "old = logprobs.detach() in main(), given to grpo_loss() instead of "
            "behavior_logprobs"
        ),
        1,
    ),
    Error(
        "gd_111",
        "openai/guided-diffusion#111",
        "means of micro-batches are summed and never divided by their number",
        "loss.backward() in TrainLoop.forward_backward, without loss / count",
        0,
    ),
    Error(
        "camnet_4",
        "dingmyu/CamNet#4 (also sktime/sktime#10931)",
        "predictions and labels are broadcast: each is compared with the whole batch",
        (
            "torch.abs(predicted - label) in GeometricLoss.l1: [batch, 3, 1, 1] minus "
            "[batch, 3]"
        ),
        0,
    ),
    Error(
        "hf_37830",
        "huggingface/transformers#37830 (also #32944)",
        "the labels are shifted twice: the model learns the token after next",
        (
            "MoEForCausalLM.forward, which shifts logits and labels before "
            "causal_lm_loss() does"
        ),
        0,
    ),
    Error(
        "wgan_40",
        "Zeleni9/pytorch-wgan#40",
        "the gradient penalty takes the norm over the channels, not over each image",
        (
            "gradients.norm(2, dim=1) in WGAN_GP.calculate_gradient_penalty, of "
            "[batch, 1, 8, 8]"
        ),
        0,
    ),
    Error(
        "easyrl_117",
        "datawhalechina/easy-rl#117 (also higgsfield/RL-Adventure#32)",
        (
            "policy and target network are the same object: the target moves with "
            "each step"
        ),
        "self.target_net = model in DoubleDQN.__init__, without a copy",
        1,
    ),
    Error(
        "mlm_411",
        "NVIDIA/Megatron-LM#411",
        "the first evaluation switches the dropout of attention off for good",
        (
            "self.dropout_p = 0.0 in FlashSelfAttention.forward, in the evaluate() "
            "after step 5"
        ),
        6,
    ),
    Error(
        "espnet_3319",
        "espnet/espnet#3319",
        (
            "a schedule made of batches is stepped once in an epoch and never leaves "
            "its warm-up"
        ),
        (
            "family.register(OneCycleLR) in main(), among the schedulers of epochs; "
            "Trainer.run steps it"
        ),
        1,
    ),
    Error(
        "rechub_176",
        "datawhalechina/torch-rechub#176 (issue #114; also pytorch/pytorch#6411)",
        "the padding of a history has a vector that is not zero, and is trained",
        (
            "RandomNormal.__call__, which makes nn.Embedding without the padding_idx "
            "of the feature"
        ),
        0,
    ),
    Error(
        "cogdl_18",
        "THUDM/cogdl#18 (also dmlc/dgl#5536)",
        "the other direction of a held-out edge stays in the training graph",
        (
            "divide_data(rows, ...) in main(), which splits a list that has each "
            "edge twice"
        ),
        0,
    ),
    Error(
        "realfill_4",
        "thuanz123/realfill#4",
        "an image and the weights of its loss are cropped and flipped apart",
        (
            "self.transform(image), self.transform(weighting) in "
            "RealFillDataset.__getitem__"
        ),
        0,
    ),
    Error(
        "ff_186",
        "X-GenGroup/Flow-Factory#186",
        (
            "one autocast region around all updates: forwards use the casts of old "
            "weights"
        ),
        (
            "with outside: in AdvantageWeightedTrainer.optimize, an autocast that "
            "optimizer.step() is in"
        ),
        1,
    ),
    Error(
        "yolo_292",
        "ultralytics/yolov5#292",
        "a scheduler that is made after the loading of a checkpoint resets the rate",
        "lr_scheduler.LambdaLR(...) after optimizer.load_state_dict(...) in train()",
        10,
    ),
    Error(
        "tune_2172",
        "meta-pytorch/torchtune#2172",
        "gradients are divided by the tokens of all ranks and by the ranks as well",
        (
            "scale_grads(self.model, 1 / num_tokens) in FullFinetuneRecipe.train, of "
            "averaged gradients"
        ),
        0,
    ),
    Error(
        "pl_3597",
        "Lightning-AI/pytorch-lightning#3597",
        "the best checkpoint is chosen by the validation of the first rank alone",
        (
            "Trainer.validation_epoch without all_reduce; seen in torch.save of "
            "ModelCheckpoint"
        ),
        3,
    ),
    Error(
        "openul_178",
        (
            "locuslab/open-unlearning#178 (also huggingface/transformers#26221, "
            "cloneofsimo/lora#26)"
        ),
        (
            "re-entrant checkpointing of blocks whose input needs no gradient "
            "(frozen embedding): the adapters in the blocks get none, only the "
            "head's adapter trains"
        ),
        (
            "checkpoint(layer, x, use_reentrant=True) in Decoder.forward, without "
            "model.enable_input_require_grads() in main()"
        ),
        0,
    ),
    Error(
        "ludwig_2100",
        "ludwig-ai/ludwig#2100 (also pytorch/vision#8250, r9y9/tacotron_pytorch#19)",
        (
            "the momentum of batch normalisation is given in the TensorFlow sense: "
            "running statistics are almost those of the last part of the last "
            "batch"
        ),
        (
            "bn_momentum = 0.95 of TabNetConfig, given to nn.BatchNorm1d in "
            "GhostBatchNorm.__init__ and TabNet.__init__; first wrong in the "
            "statistics after the forward of step 0"
        ),
        0,
    ),
    Error(
        "espnet_6284",
        "espnet/espnet#6284 (also lucidrains/vector-quantize-pytorch#10)",
        (
            "the moving averages of the codebook take the rank's own frames only, "
            "and rank 0's buffers overwrite the others'"
        ),
        "EuclideanCodebook.update, without all_reduce of size and total",
        0,
    ),
    Error(
        "anima_305",
        "WalkingMeatAxolotl/AnimaLoraStudio#305 (also timoschick/pet#36)",
        (
            "the last, incomplete group of an epoch makes no step, and its "
            "gradients stay for the first step of the next epoch, which is divided "
            "by the full number"
        ),
        (
            "Loop.accumulation_step, which ends groups at (index + 1) % grad_accum "
            "== 0 only; no step or zero_grad at the end of the epoch in Loop.run"
        ),
        2,
    ),
    Error(
        "sbay_49",
        "deep-voice/soundbay#49",
        (
            "a weighted sampler gets one weight a class instead of one a sample, "
            "and draws the first two recordings only"
        ),
        (
            "WeightedRandomSampler(weights, ...) in make_loader, with weights = "
            "class_weights instead of class_weights[data.labels]"
        ),
        0,
    ),
    Error(
        "rover_814",
        "RoboVerseOrg/RoboVerse#814 (also hill-a/stable-baselines#385)",
        (
            "the flags of episode ends are written again after the environment's "
            "step: the advantage estimate is cut one step too early and goes on "
            "over the true end"
        ),
        "dones[step] = self.next_done after self.envs.step() in Trainer.rollout",
        0,
    ),
    Error(
        "dfs_5654",
        "huggingface/diffusers#5654 (came in with #5238, fixed by #6307)",
        (
            "one is added to the signal-to-noise ratio in the numerator of the "
            "min-SNR weight as well as in the denominator"
        ),
        "snr = snr + 1 in snr_weights, before torch.minimum(snr, cap)",
        0,
    ),
    Error(
        "popt_516",
        "kozistr/pytorch_optimizer#516",
        (
            "the optimizer makes its momentum buffer anew (zeros) before each "
            "update: momentum has no effect"
        ),
        (
            "state['momentum_buffer'] = torch.zeros_like(p) in SignSGD.init_group, "
            "called by each optimizer.step()"
        ),
        1,
    ),
    Error(
        "solo_206",
        "vturrisi/solo-learn#206",
        (
            "the diagonal of the mask of positives is cleared where it is on rank "
            "0: on other ranks each view counts as its own positive"
        ),
        "mask.fill_diagonal_(False) in positives(), without the offset of the rank",
        0,
    ),
    Error(
        "ultra_22189",
        (
            "ultralytics/ultralytics#22189 (issues #21913, #17282; also "
            "huggingface/transformers#34053)"
        ),
        (
            "the state of the gradient scaler is not in the checkpoint: the scale "
            "starts again at 65536 and the first steps after the resume are "
            "skipped"
        ),
        (
            "DetectionTrainer.save, without scaler.state_dict(); seen in resume() "
            "and scaler.step() after it"
        ),
        20,
    ),
    Error(
        "aitk_1034",
        "ostris/ai-toolkit#1034",
        (
            "the sign of the moving average's update is wrong: the average is "
            "pushed away from the weights"
        ),
        "shadow.add_(gap) in ExponentialMovingAverage.update, instead of sub_",
        0,
    ),
    Error(
        "svae_15",
        "timbmg/Sentence-VAE#15 (also OpenNMT/OpenNMT-py#1521)",
        (
            "the hidden state [directions, batch, size] is reshaped by view: a "
            "row's code is made of the states of two other sentences"
        ),
        "hidden.view(-1, hidden_size * hidden_factor) in SentenceVAE.encode",
        0,
    ),
    Error(
        "everyvoice_887",
        "EveryVoiceTTS/EveryVoice#887",
        (
            "the losses of frames and durations are masked, but divided by all "
            "positions, padding included: the scale depends on the padding of "
            "the batch"
        ),
        "(loss * mask).mean() in AcousticLoss.masked",
        0,
    ),
    Error(
        "tt_596",
        "pytorch/torchtitan#596",
        (
            "each pipeline stage clips by the norm of its own gradients, not of "
            "the model's"
        ),
        (
            "nn.utils.clip_grad_norm_(parameters, MAX_NORM) in clip(), without "
            "a sum of squares over the stages"
        ),
        0,
    ),
    Error(
        "dfs_1009",
        "huggingface/diffusers#1009",
        (
            "rows of an embedding that are frozen by zeroed gradients shrink by "
            "weight decay"
        ),
        (
            "torch.optim.AdamW([embeddings], weight_decay=1e-2) in main(); the "
            "rows are not put back after optimizer.step()"
        ),
        0,
    ),
    Error(
        "ds_8171",
        "deepspeedai/DeepSpeed#8171",
        (
            "a warm-up scheduler without a given maximum takes the first "
            "group's rate for all groups: the head learns ten times too slowly"
        ),
        "max_lr = inherited[0] in WarmupLR.__init__",
        0,
    ),
    Error(
        "pl_14866",
        "Lightning-AI/pytorch-lightning#14866",
        (
            "batch statistics of the averaged model are recomputed with "
            "momentum 0 instead of None: they stay at 0 and 1, in evaluation "
            "and file"
        ),
        (
            "self.momentum = 0.0 in BatchNormUpdate, called as update_bn(train, "
            "averaged)"
        ),
        119,
    ),
    Error(
        "well_68",
        "PolymathicAI/the_well#68",
        (
            "the data module normalises the training set only; validation, "
            "roll-outs and the choice of the best file use raw fields"
        ),
        (
            "FlowDataset(valid, ...) without the normalisation (kept = {}) in "
            "FlowDataModule.__init__"
        ),
        27,
    ),
    Error(
        "monai_9100",
        "Project-MONAI/MONAI#9100",
        (
            "with a partial cache, slides that are not cached are given the "
            "patches of the last cached slide before them"
        ),
        "position is not reset in GridPatchDataset.__iter__",
        2,
    ),
    Error(
        "pl_17025",
        "Lightning-AI/pytorch-lightning#17025",
        (
            "the heads are built in another order on resume: weights are loaded "
            "by name, Adam's averages by position, so each head has another "
            "head's (same shapes)"
        ),
        (
            "property_names(), order of first appearance; "
            "self.optimizer.load_state_dict(...) in Run.load"
        ),
        80,
    ),
    Error(
        "mlm_5956",
        "NVIDIA/Megatron-LM#5956",
        (
            "expert gradients hold the sum over the tokens of all ranks and are "
            "not divided by their number: twice too large"
        ),
        "replicas = 1 in finish_gradients()",
        0,
    ),
    Error(
        "unetv2_10",
        "yaoppeng/U-Net_v2#10",
        ("a list is multiplied: four convolutions of a fusion are one and " "the same"),
        "[nn.Conv2d(...)] * levels in Fusion.__init__",
        0,
    ),
    Error(
        "hf_46634",
        "huggingface/transformers#46634",
        (
            "texts of a packed row are told apart only if no attention mask is "
            "given; the loader gives one of ones, and texts attend to the ones "
            "before them"
        ),
        "attention_mask is None in create_causal_mask()",
        0,
    ),
    Error(
        "toolrl_52",
        "qiancheng0/ToolRL#52",
        (
            "the divergence from the reference is subtracted from the loss: it "
            "is rewarded"
        ),
        "pg_loss - self.kl_loss_coef * kl_loss in Actor.losses",
        1,
    ),
    Error(
        "olaf_8",
        "showlab/Olaf-World#8",
        (
            "the codebook loss takes the straight-through output: the codebook "
            "has no gradient and stays as drawn; the encoder is pushed from its "
            "codes instead"
        ),
        'codes = out["z_q"] in LatentActionModel.forward',
        0,
    ),
    Error(
        "onetrainer_1177",
        "Nerogar/OneTrainer#1177",
        (
            "position ids are cast to bfloat16 with the other inputs: above 256 "
            "neighbours have the same position"
        ),
        ".to(self.ids_dtype) in Setup.ids",
        0,
    ),
    Error(
        "coursia_15256",
        "jsboige/CoursIA#15256",
        (
            "the values are kept in the rollout as numbers: the value loss "
            "has no graph and the value head never trains"
        ),
        "value.item() in Rollout.add",
        0,
    ),
    Error(
        "lerobot_280",
        "huggingface/lerobot#280",
        (
            "the prefix of the backbone's parameters is wrong (model. is "
            "missing): its group is empty and the backbone trains at the main "
            "rate, ten times too fast"
        ),
        (
            'prefix = "backbone" for optimizer_groups in main(); seen in the '
            "optimizer's groups"
        ),
        0,
    ),
    Error(
        "pycox_151",
        "havakv/pycox#151",
        (
            "between folds only direct children are reset; layers inside a "
            "Sequential keep the weights that saw the next fold's held-out "
            "data"
        ),
        "model.children() in Reset.__call__",
        30,
    ),
    Error(
        "ivadomed_55",
        "ivadomed/ivadomed#55",
        (
            "a cosine laid out in epochs is stepped after each batch: the "
            "rate is zero before the first epoch ends and rises again"
        ),
        "self.scheduler.step() in the batch loop of Trainer.epoch",
        1,
    ),
    Error(
        "fm_21",
        "rixwew/pytorch-fm#21",
        "functional dropout is active in evaluation, too",
        "F.dropout(x, p=p) without training= in AttentionalFM.drop",
        29,
    ),
    Error(
        "sparseml_2191",
        "neuralmagic/sparseml#2191",
        (
            "the wrapper's train() puts the fixed teacher into training mode: "
            "dropout and batch statistics in its targets, its running "
            "statistics move"
        ),
        "Distilled.train, called by model.train() in main()",
        0,
    ),
    Error(
        "vmt_1",
        "xudonmao/VMT#1",
        "mixup draws partners for the images and for the labels separately",
        "torch.randperm in Mixup.blend, once for each of the two",
        0,
    ),
    Error(
        "eclgcnn_5",
        "zzx-JLU/ECLGCNN#5",
        (
            "overlapping windows are cut before the random split: nearly all "
            "samples held out are in trained windows"
        ),
        "split_windows as split in main()",
        0,
    ),
    Error(
        "attention_6",
        "sarahwie/attention#6",
        (
            "input and target of KLDivLoss are swapped: the reverse "
            "divergence is minimised"
        ),
        "self.divergence(panel, predicted) in PanelLoss.forward",
        0,
    ),
    Error(
        "fact_9",
        "ZijiaLewisLu/CVPR2024-FACT#9",
        (
            "the best metric is never updated: each evaluation overwrites the "
            "best file, and the last weights are loaded"
        ),
        "self.best_metric in Checkpoints.offer",
        31,
    ),
    Error(
        "speechbrain_2814",
        "speechbrain/speechbrain#2814",
        (
            "two ranks; the seed is offset by rank, and a module without "
            "trained parameters is not wrapped and so not broadcast: each "
            "rank has another quantizer, that is other targets"
        ),
        (
            "torch.manual_seed(1986 + rank) before wrap(...) in train(); the "
            "quantizer's parameters"
        ),
        0,
    ),
    Error(
        "tutorials_1039",
        "pytorch/tutorials#1039 (pytorch/pytorch#31572)",
        (
            "three ranks; the ring adds up the buffer it sends instead of the "
            "one it received: wrong means, different on each rank, weights "
            "part"
        ),
        "total += passed in Ring.mean",
        0,
    ),
    Error(
        "tabformer_14",
        "IBM/TabFormer#14 (also DaoyuanLi2816/Molecule-Generator#22)",
        (
            "rows are batch-first, the encoder layer is not: attention runs "
            "over the batch instead of the ten payments"
        ),
        (
            "TransformerEncoderLayer(..., batch_first=False) in "
            "PaymentEncoder.__init__"
        ),
        0,
    ),
    Error(
        "llmfs_1061",
        "rasbt/LLMs-from-scratch#1061",
        (
            "the boolean mask has the meaning of MultiheadAttention's: a "
            "token attends to later tokens only and reads its own target"
        ),
        (
            "self.mask (triu) as attn_mask of scaled_dot_product_attention in "
            "CausalAttention.forward"
        ),
        0,
    ),
    Error(
        "baselines_436",
        "openai/baselines#436",
        (
            "the end by the time limit is kept as a terminal state: no "
            "bootstrapping there"
        ),
        "terminated | truncated as end in main(), used in Agent.update",
        0,
    ),
    Error(
        "dreambooth_1415",
        "d8ahazard/sd_dreambooth_extension#1415 (#1417)",
        (
            "the averaged copy is bfloat16: most of its updates are rounded "
            "away, and evaluation and saved file are of a poor average"
        ),
        "EMA(model, 0.99, torch.bfloat16) in main(); EMA.update",
        0,
    ),
]


def table():
    """The list as Markdown."""
    lines = ["| file | source | mechanism | step | cause |", "|---|---|---|---|---|"]
    for e in ERRORS:
        row = (f"{e.name}.py", e.source, e.what, str(e.trigger_step), e.cause)
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
