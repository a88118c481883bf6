# OpenRLHF examples/scripts/train_dpo_llama.sh of 0.9, with the reference in host memory
deepspeed --num_gpus 8 --module openrlhf.cli.train_dpo \
   --save_path ./checkpoint/llama3-8b-dpo \
   --save_steps -1 \
   --eval_steps -1 \
   --train_batch_size 64 \
   --micro_train_batch_size 1 \
   --pretrain meta-llama/Meta-Llama-3-8B \
   --bf16 \
   --max_len 2048 \
   --zero_stage 3 \
   --learning_rate 5e-7 \
   --beta 0.1 \
   --dataset OpenRLHF/preference_dataset_mixture2_and_safe_pku \
   --flash_attn \
   --ref_offload \
   --gradient_checkpoint \
   --gradient_checkpointing
