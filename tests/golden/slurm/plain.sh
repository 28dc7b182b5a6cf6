#!/bin/bash
#SBATCH --job-name="milepost-r-0123abcd"
#SBATCH --comment="r/replica-0 +1 0a1b2c"
#SBATCH --array="0-1"
#SBATCH --nodes="1"
#SBATCH --ntasks="1"
#SBATCH --cpus-per-task="8"
#SBATCH --gres="gpu:1"
#SBATCH --open-mode="append"
#SBATCH --no-requeue

case "$SLURM_ARRAY_TASK_ID" in
0)
    folder=/runs/r/0
    log=/runs/r/0.log
    argv=(/env/bin/python -m tasks.inference.worker /runs/r/0/spec.json)
    export PYTHONPATH=/milepost
    export PYTHONUNBUFFERED=1
    ;;
1)
    folder=/runs/r/1
    log=/runs/r/1.log
    argv=(/env/bin/python -m tasks.inference.worker /runs/r/1/spec.json)
    export PYTHONPATH=/milepost
    export PYTHONUNBUFFERED=1
    ;;
esac

export OMP_NUM_THREADS=8
cd -- "$folder" || exit 1
exec >>"$log" 2>&1
# compilers of engines on one node must not write into one another's files, nor listen on one port
caches="${TMPDIR:-/tmp}/milepost+${SLURMD_NODENAME:-}+"
cache="$caches$SLURM_JOB_ID.$$"
# a job that was killed could not remove its own; its number may be looked up on its node alone
for old in "$caches"*.*; do
    if [ -O "$old" ] && [ ! -e "/proc/${old##*.}" ]; then rm -rf -- "$old"; fi
done
export VLLM_CACHE_ROOT="${VLLM_CACHE_ROOT:-$cache/vllm}"
export TORCHINDUCTOR_CACHE_DIR="${TORCHINDUCTOR_CACHE_DIR:-$cache/torchinductor}"
export TRITON_CACHE_DIR="${TRITON_CACHE_DIR:-$cache/triton}"
export VLLM_PORT="${VLLM_PORT:-$((20000 + SLURM_JOB_ID % 120 * 100))}"
export MILEPOST_NODE="${SLURMD_NODENAME:-}"
# Slurm signals this shell alone at first: the replica has to hear of it, and is waited for
trap 'told=yes; kill -TERM "$replica" 2>/dev/null' TERM
bash -c 'unset -v RANK LOCAL_RANK NODE_RANK GROUP_RANK ROLE_RANK ROLE_NAME WORLD_SIZE LOCAL_WORLD_SIZE GROUP_WORLD_SIZE ROLE_WORLD_SIZE MASTER_ADDR MASTER_PORT ${!SLURM_@} ${!SLURMD_@} ${!SRUN_@} ${!SBATCH_@} ${!PMI_@} ${!PMIX_@} ${!OMPI_@}; while [ "$1" != -- ]; do export "$1"; shift; done; shift; exec "$@"' milepost -- "${argv[@]}" </dev/null &
replica=$!
told=yes
while [ -n "$told" ]; do
    told=
    wait "$replica"
    code=$?
done
rm -rf -- "$cache"
exit "$code"
