#!/bin/bash
#SBATCH --job-name=tfgrpo-workers
#SBATCH --ntasks=8 --cpus-per-task=4 --time=08:00:00
#SBATCH --signal=TERM@60
# Workers are told a minute before the time is up: they hand back what they cannot end.
export TFGRPO_STORE=postgresql://ann@db.example/team   # the password: ~/.pgpass
srun --kill-on-bad-exit=0 tfgrpo workers run --slots 32 --grace 45
