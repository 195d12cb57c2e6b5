#!/usr/bin/env bash
# Starts three nodes on this machine from node1.xml, node2.xml and node3.xml beside this script; Ctrl-C or SIGTERM stops all three.
#
# usage: config/cluster/run.sh [PROGRAM]     (DATA: where the nodes keep their data, and the files NAME.pid, default data-cluster)
set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd)
program=${1:-target/release/troupemq}
data=${DATA:-data-cluster}
names=(node1 node2 node3)
pids=()
printers=()

if [ ! -x "$program" ]; then
  echo "run.sh: no program at $program; build it with: cargo build --release" >&2
  exit 2
fi

# Set by the first signal; the second one does not wait any more.
stopping=

stop() {
  if [ -n "$stopping" ]; then
    kill -KILL "${pids[@]}" 2>/dev/null
    return
  fi
  stopping=yes
  echo "stopping ${names[*]}"
  kill -TERM "${pids[@]}" 2>/dev/null
}
trap stop INT TERM HUP

# One value of a node's configuration: the first PORT in SECTION of FILE.
port() {
  sed -n "/<$1>/,/<\/$1>/s:.*<port>\([0-9]*\)</port>.*:\1:p" "$2" | head -1
}

pipes=$(mktemp -d) || exit 1
trap 'rm -rf "$pipes"; (cd "$data" && rm -f "${names[@]/%/.pid}")' EXIT
for index in "${!names[@]}"; do
  name=${names[$index]}
  mkdir -p "$data/$name"
  mkfifo "$pipes/$name"
  # The printer ignores Ctrl-C so that what the node says while it stops is still seen; it ends with the node's output.
  (trap '' INT TERM HUP; while IFS= read -r line; do printf '%s | %s\n' "$name" "$line"; done) <"$pipes/$name" &
  printers+=("$!")
  # A session of its own keeps the terminal's Ctrl-C from the node: this script stops it, once.
  setsid "$program" start --config "$here/$name.xml" --data "$data/$name" >"$pipes/$name" 2>&1 </dev/null &
  pids+=("$!")
  echo "$!" >"$data/$name.pid"
done

for name in "${names[@]}"; do
  file=$here/$name.xml
  echo "$name: MQTT 127.0.0.1:$(port tcp-listener "$file"), WebSocket ws://127.0.0.1:$(port websocket-listener "$file")/mqtt," \
    "HTTP http://127.0.0.1:$(port http "$file")/, data in $data/$name"
done
echo "Ctrl-C stops all three"

status=0
alive=("${pids[@]}")
while [ "${#alive[@]}" -gt 0 ]; do
  # Returns when a node has ended, or early when a signal comes.
  wait -n "${alive[@]}" 2>/dev/null
  code=$?
  still=()
  for index in "${!names[@]}"; do
    pid=${pids[$index]}
    [[ " ${alive[*]} " == *" $pid "* ]] || continue
    if kill -0 "$pid" 2>/dev/null; then
      still+=("$pid")
    elif [ -z "$stopping" ] && [ "$code" -ge 128 ]; then
      # Killed by somebody who watches a fail-over: that is what the others are for.
      name=${names[$index]}
      echo "$name was killed (signal $((code - 128))); the others go on. To start it again, in another terminal:"
      echo "  $program start --config $here/$name.xml --data $data/$name"
    elif [ -z "$stopping" ]; then
      echo "${names[$index]} ended by itself with status $code; the others are stopped too" >&2
      status=1
      stop
    fi
  done
  alive=("${still[@]}")
done
wait "${printers[@]}" 2>/dev/null
exit "$status"
