"""Names of keys that AReaL's training reads and evaluation does not, over its versions: they are ignored, not refused.

A key is listed under the section it stands in. Sections whose keys are the trainer's or the engine server's own, and
change with every version, are `OPEN_SECTIONS`: there an unlisted key is refused only when it looks like a misspelling.
Keys that decide what is generated or scored stand in schemas/config/deciding_keys.py: they are never ignored.
"""

from typing import Final

_SECTIONS: Final = """
allocation_mode allocation_use_cache async_training cache_clear_freq checkpointer cpus_per_master_worker
cpus_per_model_worker critic debug dynamic_bs enable_offload env_vars exclude exp_ctrl export_style
ignore_worker_error image_name launcher log_agent_stats mem_per_master_worker mem_per_model_worker
memory_profiler metric_discovery_port mode model model_path n_gpus_per_node n_nodes nodelist optimizer partition
perf_tracer ray_temp_path recover recover_after recover_mode recover_retries ref reward_fn_path saver
schedule_strategy server_only shuffle_dataset stats_logger swanlab teacher tensorboard torch_cache_mysophobia
total_train_epochs total_train_n_seqs total_train_steps train_dataset trackio wandb weight_update_mode
"""

TRAINING_SECTIONS: Final = frozenset(_SECTIONS.split())
"""Whole top-level sections and values."""

_TIMER: Final = "experiment_name trial_name fileroot"

_GENERATION: Final = "lora_name force_cudagraph_recapture force_no_logits_mask use_cuda_graph"

TRAINING_KEYS: Final[dict[str, frozenset[str]]] = {
    section: frozenset(names.split())
    for section, names in {
        "cluster": "cluster_name config_path cpu_image gpu_image gpu_infer_image gpu_type mount name_resolve "
        "node_name_prefix",
        "scheduler": "deploy_mode endpoint functioncall_service_domain reward_model_service_url",
        "rollout": "_version admin_api_key check_trajectory_format consumer_batch_size dump_to_file "
        "enable_rollout_tracing experiment_name fileroot max_head_offpolicyness model pause_grace_period "
        "poll_interval provider_api_key queue_size request_retries request_timeout return_routed_experts "
        "routing_strategy schedule_policy scheduling_spec scheduling_strategy tokenizer_path trial_name use_lora",
        "gconfig": _GENERATION,
        "eval_gconfig": _GENERATION,
        "actor": "_version admin_api_key adv_norm archon attn_impl backend behav_imp_weight_cap behave_imp_weight_cap "
        "behave_imp_weight_mode beta c_clip disable_dropout discount ds_auto_tp dynamic_sampling enable_tree_training "
        "eps_clip eps_clip_higher experiment_name fsdp gae_lambda grad_reduce_dtype gradient_checkpointing "
        "group_adv_norm group_reward_norm group_size importance_sampling_level init_critic_from_actor kl_ctl "
        "kl_estimator log_agent_stats log_agent_stats_keys log_level lora_alpha lora_rank loss_type m2_threshold "
        "mask_no_eos_with_zero max_new_tokens mb_spec megatron offload optimizer overlong_penalty_factor "
        "overlong_reward_penalty overlong_tokens pad_to_maximum peft_type ppo_n_minibatches prox_logp_method "
        "recompute_logprob rejection_sampling request_timeout reward_bias reward_clip reward_norm reward_scaling "
        "sapo_tau_neg sapo_tau_pos scheduling_spec scheduling_strategy setup_timeout target_modules temperature "
        "trial_name type use_decoupled_loss use_kernels use_lora use_sapo_loss weight_update_mode",
        "valid_dataset": "num_dataset_workers num_workers pin_memory scheduling_spec setup_timeout shuffle",
        "evaluator": _TIMER,
        "vllm": "block_size cpu_offload_gb disable_sliding_window distributed_executor_backend enable_chunked_prefill "
        "enable_lora enable_prefix_caching enable_sleep_mode enforce_eager hybrid_train max_lora_rank max_loras "
        "max_num_seqs max_seq_len_to_capture model multi_step_stream_outputs no_enable_chunked_prefill "
        "no_enable_prefix_caching num_scheduler_steps seed skip_tokenizer_init swap_space uvicorn_log_level "
        "worker_extension_cls",
        "sglang": "attention_backend chunked_prefill_size cpu_offload_gb cuda_graph_bs cuda_graph_max_bs "
        "decode_log_interval disable_cuda_graph disable_cuda_graph_padding disable_custom_all_reduce disable_mla "
        "disable_outlines_disk_cache disable_overlap_schedule disable_radix_cache dp_size enable_dp_attention "
        "enable_ep_moe enable_fast_load enable_lora enable_memory_saver enable_metrics enable_mixed_chunk "
        "enable_multimodal enable_multithread_load enable_nan_detection enable_nccl_nvls enable_p2p_check "
        "enable_return_routed_experts enable_torch_compile ep_size hybrid_train log_level log_level_http log_requests "
        "log_requests_level lora_backend lora_target_modules max_loaded_loras max_lora_rank max_loras_per_batch "
        "max_prefill_tokens max_running_requests max_total_tokens model_path num_continuous_decode_steps random_seed "
        "sampling_backend schedule_conservativeness schedule_policy show_time_cost skip_tokenizer_init "
        "torch_compile_max_bs triton_attention_num_kv_splits triton_attention_reduce_in_fp32",
    }.items()
}
"""Keys inside sections that evaluation reads."""

OPEN_SECTIONS: Final = frozenset({"actor", "cluster", "rollout", "scheduler", "sglang", "vllm"})
"""Sections that hold more of the trainer's or server's keys than of ours."""

_SILENT: Final = """
decode_log_interval enable_fast_load enable_memory_saver enable_metrics enable_multimodal enable_multithread_load
enable_return_routed_experts enable_sleep_mode hybrid_train log_level log_level_http log_requests log_requests_level
model model_path random_seed seed show_time_cost skip_tokenizer_init uvicorn_log_level worker_extension_cls
"""

SILENT_ENGINE_KEYS: Final = frozenset(_SILENT.split())
"""Keys of an engine's section that cannot touch a number, or that evaluation sets itself; the others are named."""
