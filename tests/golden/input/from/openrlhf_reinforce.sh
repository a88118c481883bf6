# OpenRLHF examples/scripts/train_reinforce_baseline_hybrid_engine.sh of 0.11.0, shorter and without ring attention
MODEL_PATH="Qwen/Qwen3-8B"
ROLLOUT_ARGS=(
   --train.agent_func_path examples/python/agent_func.py
   # --reward.remote_url URL
   --data.prompt_dataset zhuzilin/dapo-math-17k
   --data.max_len 8192
   --rollout.max_new_tokens 6144
   --rollout.batch_size 128
   --rollout.n_samples_per_prompt 8
   --train.batch_size 256
   --train.micro_batch_size 1
   --ds.packing_samples
)
ENGINE_ARGS=(
   --ref.num_nodes 1
   --ref.num_gpus_per_node 8
   --actor.num_nodes 1
   --actor.num_gpus_per_node 8
   --vllm.num_engines 4
   --vllm.tensor_parallel_size 2
   --vllm.gpu_memory_utilization 0.5
   --vllm.enable_sleep
   --train.colocate_all
   --ds.enable_sleep
   --ds.zero_stage 3
   --actor.gradient_checkpointing_enable
)
ray job submit --address="http://127.0.0.1:8265" \
   -- python3 -m openrlhf.cli.train_ppo_ray \
   --actor.model_name_or_path ${MODEL_PATH} \
   ${ROLLOUT_ARGS[@]} \
   "${ENGINE_ARGS[@]}" \
   --algo.advantage.estimator reinforce_baseline --algo.kl.init_coef 1e-5
