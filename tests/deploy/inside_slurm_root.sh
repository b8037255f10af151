#!/usr/bin/env bash
# In a clean root with the package and Debian's slurm-wlm: two node daemons, the
# TaskProlog, and the examples of deploy/slurm on a training of two ranks.
#
#   inside_slurm_root.sh DEB PYTHON SLURM_EXAMPLES SCRIPT
#
# Prints a line "== NAME" before the output of each part.
set -euo pipefail
deb=$1 python=$2 examples=$3 script=$4
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root OMP_NUM_THREADS=1
host=$(hostname)
state=/tmp/slurm
export SLURM_CONF=$state/slurm.conf

wait_for() { # COMMAND...: until it succeeds
  for _ in $(seq 600); do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 0.2
  done
  echo "gave up waiting for: $*" >&2
  tail -n 20 $state/*.log >&2
  return 1
}
ended() { [ -z "$(squeue --noheader --job "$1" 2>/dev/null)" ]; }
nodes_are_idle() { [ "$(sinfo --noheader --format=%D --states=idle)" = 2 ]; }

# Slurm asks for addresses of the host, and loopback is none. Each node has one by
# which the other reaches it.
ip address add 192.0.2.1/32 dev lo
ip address add 192.0.2.2/32 dev lo
printf '192.0.2.1 node1\n192.0.2.2 node2\n' >>/etc/hosts

dpkg --install "$deb" >/dev/null
install -m 0755 "$examples/task_prolog.sh" /etc/slurm/traincheck_task_prolog.sh

mkdir -p $state/{state,node1,node2,jobs}
cat >$SLURM_CONF <<END
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog=/etc/slurm/traincheck_task_prolog.sh
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
StateSaveLocation=$state/state
SlurmdSpoolDir=$state/%n
SlurmctldPidFile=$state/ctld.pid
SlurmdPidFile=$state/%n.pid
SlurmctldLogFile=$state/ctld.log
SlurmdLogFile=$state/%n.log
ReturnToService=2
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName=node1 NodeHostname=$host NodeAddr=127.0.0.1 Port=17001 CPUs=2
NodeName=node2 NodeHostname=$host NodeAddr=127.0.0.1 Port=17002 CPUs=2
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
slurmctld -f $SLURM_CONF 2>/dev/null
for node in node1 node2; do
  slurmd -N $node -f $SLURM_CONF
done
wait_for nodes_are_idle
cd $state/jobs

echo "== site daemon"
printf 'server: 127.0.0.1:7471\nspool_dir: /tmp/spool\n' >/etc/traincheck.yaml
traincheckd --data-dir $state/store --listen 127.0.0.1:7471 2>$state/traincheckd.log &
daemon=$!
wait_for traincheckctl status
job=$(sbatch --parsable "$examples/job_with_site_daemon.sbatch" "$python" "$script")
wait_for ended "$job"
cat ./*-"$job".out
traincheckctl -o json runs show "$job.0"
kill $daemon
wait $daemon

echo "== own daemon"
printf 'spool_dir: /tmp/spool\n' >/etc/traincheck.yaml
job=$(sbatch --parsable "$examples/job_with_daemon.sbatch" "$python" "$script")
wait_for ended "$job"
cat ./*-"$job".out
echo "== kept"
cat "traincheck-$job/violations.txt"
tail -n 1 "traincheck-$job/traincheckd.log"

echo "== own daemon on nodes"
job=$(sbatch --parsable "$examples/job_on_nodes_with_daemon.sbatch" \
  "$python" "$script")
wait_for ended "$job"
cat ./*-"$job".out
echo "== kept of nodes"
stat --format='%n %a' "traincheck-$job"/{,certs/*,token}
cat "traincheck-$job/violations.txt"
cat "traincheck-$job/address" "traincheck-$job/traincheckd.log"
