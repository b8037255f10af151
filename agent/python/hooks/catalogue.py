"""What the agent wraps: the one list to review.

An entry of the table is a line

    namespace  mode  category  role  # reason

and, indented below it, the names that it is about. Of a namespace only what is
named is wrapped, and the first entry that fits a name decides.

namespace  a module, or module:Class for the methods that this class defines,
           or module:* for those of all its classes
mode       skeleton: in every mode, by the hook module that knows what to do
           there. full: in full collection only. out: never
category   of the FunctionDef (proto/RECORD_FORMAT.md, "Categories")
role       what functions of many names have in common: the FunctionDef's last
           role. "-" for none
names      words or patterns (*); no pattern means a private name (_x)
reason     why it is here, or why it is left out
"""

# Packages whose modules the table may name besides torch.
FRAMEWORKS = ("transformers", "accelerate", "lightning", "pytorch_lightning")

TABLE = """
torch.nn.modules.module:Module  skeleton  forward  -  # module calls are the frame
    __call__
torch.nn.modules.module:Module  skeleton  train_mode  -  # mode is a fact of its own
    train eval
torch.nn.modules.module:Module  skeleton  zero_grad  -  # closes steps
    zero_grad
torch.nn.modules.module:Module  skeleton  load_state_dict  -  # state changes
    load_state_dict
torch.nn.modules.module:Module  skeleton  state_dict  -  # what is saved
    state_dict
torch.optim.optimizer:Optimizer  skeleton  optimizer_init  -  # what is trained
    __init__
torch.optim.optimizer:Optimizer  skeleton  optimizer_step  -  # with all subclasses
    step
torch.optim.optimizer:Optimizer  skeleton  zero_grad  -  # with all subclasses
    zero_grad
torch.optim.optimizer:Optimizer  skeleton  load_state_dict  -  # resume
    load_state_dict
torch.optim.optimizer:Optimizer  skeleton  state_dict  -  # what is saved
    state_dict
torch:Tensor  skeleton  backward  -  # stages
    backward
torch.autograd  skeleton  backward  -  # stages
    backward
torch.nn.parallel.distributed:DistributedDataParallel  skeleton  wrap  -  # replicas
    __init__
torch.nn.utils.clip_grad  skeleton  clip_grad  -  # gradients change between backward and step
    clip_grad_norm_ clip_grad_value_ clip_grad_norm
torch.utils.data.dataloader:DataLoader  skeleton  loader_iter  -  # epochs
    __iter__
torch.utils.data.dataloader:_BaseDataLoaderIter  skeleton  loader_next  -  # steps
    __next__
torch.utils.data._utils.fetch:*  skeleton  fetch  -  # what workers do
    fetch
torch.serialization  skeleton  save  -  # checkpoints
    save
torch.serialization  skeleton  load  -  # checkpoints
    load
torch.distributed.distributed_c10d  skeleton  init_process_group  -  # ranks
    init_process_group
torch.distributed.distributed_c10d  skeleton  destroy_process_group  -  # ends a rank's last step
    destroy_process_group
torch.distributed.distributed_c10d  skeleton  new_group  -  # topology
    new_group split_group
torch.distributed.device_mesh:DeviceMesh  skeleton  device_mesh  -  # topology
    __init__
torch.autograd.grad_mode:no_grad  skeleton  context  -  # gradients off
    __enter__ __exit__
torch.autograd.grad_mode:enable_grad  skeleton  context  -  # gradients on
    __enter__ __exit__
torch.autograd.grad_mode:inference_mode  skeleton  context  -  # gradients off for good
    __enter__ __exit__
torch.autograd.grad_mode:set_grad_enabled  skeleton  context  -  # gradients on or off
    __enter__ __exit__
torch.amp.autocast_mode:autocast  skeleton  context  -  # precision of a region
    __enter__ __exit__
torch.autograd.anomaly_mode:detect_anomaly  skeleton  context  -  # slows and checks a region
    __enter__ __exit__
torch.random  skeleton  context  -  # a region with random numbers of its own
    fork_rng
torch.nn.parallel.distributed:DistributedDataParallel  skeleton  context  -  # accumulation
    no_sync
torch.utils.checkpoint  skeleton  checkpoint  -  # its forward trains without gradients
    checkpoint
torch.distributed.distributed_c10d  skeleton  collective  -  # order across ranks
    all_gather all_gather_coalesced all_gather_into_tensor all_gather_object
    all_gather_single all_reduce all_reduce_coalesced all_to_all all_to_all_single
    barrier broadcast broadcast_object_list gather gather_object monitored_barrier
    reduce reduce_scatter reduce_scatter_single reduce_scatter_tensor scatter
    scatter_object_list
torch.nn.init  out  -  -  # asks, changes nothing, costs less than its record
    calculate_gain
torch.nn.init  full  initialiser  initialiser  # how weights begin
    *
torch.nn.functional  out  -  -  # torch calls it to decide how to call; never in user code
    has_torch_function* handle_torch_function boolean_dispatch assert_int_or_pair
torch.nn.functional  full  operation  dropout  # stage matters
    dropout dropout_ dropout1d dropout2d dropout3d alpha_dropout alpha_dropout_
    feature_dropout feature_dropout_ feature_alpha_dropout feature_alpha_dropout_
    native_dropout scaled_dot_product_attention
torch.nn.functional  full  operation  loss  # what is minimised
    *_loss cross_entropy binary_cross_entropy* kl_div ctc_loss
torch.nn.functional  full  operation  norm  # stage matters
    batch_norm layer_norm group_norm instance_norm rms_norm local_response_norm
torch.nn.functional  full  operation  -  # what models compute
    *
torch.functional  full  operation  -  # what models compute
    *
torch.random  full  random  seed  # where randomness comes from
    manual_seed seed
torch.random  full  random  rng_state  # kept and put back, as recomputation does
    set_rng_state get_rng_state fork_rng
torch  out  -  -  # asks, changes nothing, costs less than its record
    is_* has_* get_default_* get_num_* get_device* get_file_path get_autocast_*
    get_deterministic_* get_float32_* numel typename result_type can_cast
    promote_types sym_* compiled_with_cxx11_abi classproperty
    prepare_multiprocessing_environment are_deterministic_* default_generator
    from_file import_ir_module* parse_* merge_type_* unify_type_list *_shape
    cudnn_is_acceptable constant_pad_nd is_same_size obj device_count autocast_*
    clear_autocast_cache set_autocast_* initial_seed init_num_threads read_vitals
    set_vital vitals_enabled fork wait wait_callbacks set_printoptions
    empty_quantized detach_copy
torch  full  operation  copy  # cuts the graph
    detach
torch  full  setting  setting  # changes what every later call does
    set_default_* use_deterministic_algorithms set_deterministic_*
    set_float32_matmul_precision set_num_* set_flush_denormal set_warn_always
    set_anomaly_enabled
torch  full  compiler  -  # what is compiled
    compile
torch  full  operation  random  # draws from a generator
    bernoulli bernoulli_ cauchy_ exponential_ geometric_ log_normal_ multinomial
    normal normal_ poisson random_ uniform_ rand rand_like randint randint_like
    randn randn_like randperm binomial
torch  full  operation  dropout  # stage matters
    dropout dropout_ dropout1d dropout2d dropout3d alpha_dropout alpha_dropout_
    feature_dropout feature_dropout_ feature_alpha_dropout feature_alpha_dropout_
    native_dropout
torch  full  operation  copy  # what is the same, what a copy
    clone copy_ detach detach_ detach_copy contiguous deepcopy
torch  full  operation  loss  # what is minimised
    *_loss cross_entropy binary_cross_entropy* kl_div ctc_loss
torch  full  operation  norm  # stage matters
    batch_norm layer_norm group_norm instance_norm rms_norm local_response_norm
torch  full  operation  -  # what models compute
    *
torch.linalg  full  operation  -  # what models compute
    *
torch.fft  full  operation  -  # what models compute
    *
torch.special  full  operation  -  # what models compute
    *
torch.sparse  full  operation  -  # what models compute
    *
torch:Tensor  out  -  -  # asks, changes nothing, costs less than its record
    size stride dim ndimension numel nelement element_size data_ptr get_device
    storage_offset type_as sparse_dim dense_dim dim_order names
torch:Tensor  out  -  -  # asks, changes nothing, or of no use to training
    is_* has_names *storage* as_subclass align_* apply_ map_ map2_ numpy resolve_*
    tolist module_load register_hook reinforce eig solve symeig lstsq volatile
    backward
torch:Tensor  out  -  -  # the interpreter calls it, or a slot would become slower without us
    __bool__ __float__ __int__ __index__ __complex__ __len__ __iter__ __getitem__
    __setitem__ __delitem__ __contains__ __hash__ __format__ __repr__ __deepcopy__
    __reduce_ex__ __array__ __torch_function__
torch:Tensor  full  operation  freeze  # what is trained
    requires_grad_
torch:Tensor  full  operation  initialiser  # overwrites content
    fill fill_ zero_ copysign_
torch:Tensor  full  operation  random  # draws from a generator
    bernoulli bernoulli_ cauchy_ exponential_ geometric_ log_normal_ multinomial
    normal normal_ poisson random_ uniform_ rand rand_like randint randint_like
    randn randn_like randperm binomial
torch:Tensor  full  operation  cast  # precision and place change
    to type half float double bfloat16 cpu cuda xpu npu hpu ipu mtia int long short
    char byte bool cfloat cdouble chalf
torch:Tensor  full  operation  copy  # what is the same, what a copy
    clone copy_ detach detach_ detach_copy contiguous deepcopy
torch:Tensor  full  operation  -  # what models compute
    __add__ __radd__ __iadd__ __sub__ __rsub__ __isub__ __mul__ __rmul__ __imul__
    __truediv__ __rtruediv__ __itruediv__ __floordiv__ __rfloordiv__ __ifloordiv__
    __mod__ __rmod__ __imod__ __pow__ __rpow__ __ipow__ __matmul__ __rmatmul__
    __neg__ __pos__ __abs__ __invert__ __and__ __rand__ __iand__ __or__ __ror__
    __ior__ __xor__ __rxor__ __ixor__ __lshift__ __rlshift__ __ilshift__ __rshift__
    __rrshift__ __irshift__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__
torch:Tensor  full  operation  -  # what models compute
    *
torch.nn.modules.module:Module  full  module_method  cast  # precision and place change
    to half float double bfloat16 type cpu cuda xpu ipu mtia to_empty
torch.nn.modules.module:Module  full  module_method  freeze  # what is trained
    requires_grad_
torch.nn.modules.module:Module  full  module_method  initialiser  # how weights begin
    apply
torch.nn.modules.module:Module  full  module_method  structure  # what the model consists of
    register_* add_module set_submodule set_extra_state share_memory compile
torch.nn.modules.module:Module  out  -  -  # asks, changes nothing, costs less than its record
    forward named_* parameters buffers children modules get_* extra_repr
    register_module
torch.nn.utils.rnn  full  operation  -  # lengths and padding
    *
torch.nn.utils.clip_grad  full  clip_grad  clip  # the two halves of clipping
    clip_grads_with_norm_ get_total_norm
torch.nn.utils.convert_parameters  full  operation  copy  # moves parameters
    *
torch.nn.utils.parametrize  out  -  -  # asks, changes nothing, costs less than its record
    is_parametrized
torch.nn.utils.parametrize  full  module_method  structure  # parameters are replaced
    register_parametrization remove_parametrizations cached
torch.nn.utils.parametrizations  full  module_method  structure  # parameters are replaced
    *
torch.nn.utils.weight_norm  full  module_method  structure  # parameters are replaced
    weight_norm remove_weight_norm
torch.nn.utils.spectral_norm  full  module_method  structure  # parameters are replaced
    spectral_norm remove_spectral_norm
torch.nn.utils.fusion  full  module_method  structure  # BN folds
    fuse_*
torch.optim.optimizer:Optimizer  full  optimizer_method  -  # what is trained
    add_param_group
torch.optim.lr_scheduler:*  full  scheduler  schedule  # the learning rate
    __init__ step load_state_dict state_dict
torch.optim.swa_utils:AveragedModel  full  module_method  average  # shadow copies
    update_parameters
torch.optim.swa_utils  full  operation  average  # shadow
    update_bn
torch.amp.grad_scaler:GradScaler  full  scaler  scaler  # skipped steps
    scale unscale_ step update load_state_dict state_dict
torch.autograd  full  autograd  backward  # a backward by hand
    grad
torch.autograd.functional  full  autograd  backward  # derivatives
    *
torch.utils.checkpoint  full  autograd  recompute  # recomputation
    checkpoint checkpoint_sequential
torch.distributed.distributed_c10d  full  collective  collective  # order across ranks
    new_group new_subgroups* split_group send recv isend irecv batch_isend_irecv
    send_object_list recv_object_list
torch.nn.parallel.distributed:DistributedDataParallel  full  module_method  -  # replicas
    no_sync join register_comm_hook
torch.nn.parallel.data_parallel  full  operation  -  # as above
    data_parallel
torch.distributed.fsdp._fully_shard._fully_shard  full  wrap  -  # shards
    fully_shard
torch.distributed.checkpoint.state_dict_saver  full  save  save  # checkpoints
    save async_save
torch.distributed.checkpoint.state_dict_loader  full  load  load  # checkpoints
    load
torch.utils.data._utils.collate  full  data  collate  # how a batch is made
    default_collate default_convert
torch.utils.data.dataset  full  data  -  # train and test
    random_split
torch.utils.data.dataloader:DataLoader  full  data  loader  # what feeds the training
    __init__
torch.utils.data.distributed:DistributedSampler  full  data  sampler  # shuffling differs by epoch and rank
    __init__ set_epoch
torch.jit  full  compiler  -  # what is compiled
    script trace
torch.jit._serialization  full  save  save  # checkpoints
    save
torch.jit._serialization  full  load  load  # checkpoints
    load
torch.cuda  full  setting  setting  # where and when
    set_device empty_cache synchronize
torch.cuda.random  full  random  seed  # where randomness comes from
    manual_seed manual_seed_all seed seed_all
torch.cuda.random  full  random  rng_state  # as above
    set_rng_state*
transformers.trainer:Trainer  full  framework  -  # the training loop of others
    __init__ train training_step compute_loss evaluate prediction_step
    create_optimizer create_scheduler create_optimizer_and_scheduler save_model
    get_train_dataloader get_eval_dataloader
transformers.trainer_utils  full  random  seed  # seeds
    set_seed
transformers.optimization  full  scheduler  -  # learning rates
    get_*
transformers.modeling_utils:PreTrainedModel  full  framework  -  # what the model consists of
    from_pretrained save_pretrained tie_weights resize_token_embeddings
    gradient_checkpointing_enable init_weights
transformers.data.data_collator  full  data  collate  # as above
    *_data_collator
accelerate.accelerator:Accelerator  full  framework  -  # the training loop of others
    __init__ prepare* backward clip_grad_* accumulate no_sync autocast gather*
    reduce save_* load_* unwrap_model wait_for_everyone
accelerate.utils.random  full  random  seed  # seeds
    set_seed
accelerate.optimizer:AcceleratedOptimizer  full  framework  -  # accumulation skips steps
    step zero_grad
accelerate.scheduler:AcceleratedScheduler  full  framework  schedule  # accumulation skips steps
    step
lightning.pytorch.trainer.trainer:Trainer  full  framework  -  # the training loop of others
    __init__ fit validate test predict save_checkpoint
pytorch_lightning.trainer.trainer:Trainer  full  framework  -  # the training loop of others
    __init__ fit validate test predict save_checkpoint
lightning.pytorch.core.module:LightningModule  full  framework  -  # the training loop of others
    manual_backward optimizer_step optimizer_zero_grad configure_gradient_clipping
    clip_gradients toggle_optimizer
pytorch_lightning.core.module:LightningModule  full  framework  -  # the training loop of others
    manual_backward optimizer_step optimizer_zero_grad configure_gradient_clipping
    clip_gradients toggle_optimizer
lightning.fabric.utilities.seed  full  random  seed  # as above
    seed_everything
"""

# Classes whose subclasses in user code have their methods wrapped when the
# class is created. The names are those of methods left out; private methods
# and properties always are.
BASES = """
torch.nn.modules.module:Module  full  module_method  -  # besides its forward
    forward __call__ __init__ extra_repr train eval zero_grad state_dict
    load_state_dict named_* parameters buffers children modules get_*
torch.optim.optimizer:Optimizer  full  optimizer_method  -  # besides the skeleton
    __init__ step zero_grad state_dict load_state_dict
torch.optim.lr_scheduler:LRScheduler  full  scheduler  -  # the learning rate
torch.utils.data.dataset:Dataset  full  data  -  # where samples come from
    __len__
torch.utils.data.sampler:Sampler  full  data  -  # in which order
    __len__
torch.autograd.function:Function  full  autograd  -  # gradients by hand
    apply
"""
