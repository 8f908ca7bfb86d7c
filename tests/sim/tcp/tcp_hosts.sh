#!/usr/bin/env bash
# tcp_hosts.sh PROGRAM CASE [ATTACKER]: whole calls over TCP between processes that are a node each. Cases:
#   loopback    exact on this host
#   namespaces  exact between two network namespaces joined by a veth pair
#   killed      one side is killed: the other one returns an error within its limit; between namespaces
#               where they can be made
#   interfaces  the same, where other interfaces come first and no list names the right one; F-91
#   apart       two hosts with loopback and nothing else are refused; F-92
#   attacked    as namespaces, while ATTACKER tries all it can as user nobody on both sides; again and again
#               until it has found the ports, which are open for milliseconds
#   possible    (PROGRAM is not run) 0 = namespaces can be made here; else one line says why not
set -u
program=$1 case=$2 attacker=${3:-}
shape=(--place processes --nodes 2 --ranks-per-node 2 --tokens 32 --hidden 256 --topk 2 --experts 8
    --sms 4)
export SWIMLANE_TRANSPORT=peer,tcp SWIMLANE_SOCKET_IFNAME=lo
log=$(mktemp)
left=swl-a-$$ right=swl-b-$$

attackers=()

cleanup() {
    [ ${#attackers[@]} -eq 0 ] || kill "${attackers[@]}"
    rm -f "$log"
    ip netns del "$left" 2>/dev/null
    ip netns del "$right" 2>/dev/null
}
trap cleanup EXIT

# What comes before the interface that connects the hosts, on both alike: an address of the link only, what
# is called like a container's bridge, a port that is up and whose other end is not.
make_others() {
    local host
    for host in "$left" "$right"; do
        ip netns add "$host" && ip -n "$host" link set lo up &&
            ip -n "$host" link add aa0 type veth peer name docker0 &&
            ip -n "$host" addr add 169.254.9.9/16 dev aa0 && ip -n "$host" link set aa0 up &&
            ip -n "$host" addr add 172.31.0.1/24 dev docker0 && ip -n "$host" link set docker0 up &&
            ip -n "$host" link add ab0 type veth peer name ab1 &&
            ip -n "$host" addr add 10.213.79.1/30 dev ab0 && ip -n "$host" link set ab0 up || return 1
    done
}

make_interfaces() {
    make_others && ip -n "$left" link add swl0 type veth peer name swl0 netns "$right" || return 1
    ip -n "$left" addr add 10.213.77.1/30 dev swl0 && ip -n "$left" link set swl0 up &&
        ip -n "$right" addr add 10.213.77.2/30 dev swl0 && ip -n "$right" link set swl0 up &&
        ip -n "$left" route add default via 10.213.77.2 &&
        ip -n "$right" route add default via 10.213.77.1
}

not_here() {
    echo "not run: network namespaces cannot be made here: $(tail -n 1 "$log")"
    [ "${CI:-}" != true ] || exit 1
    exit 77
}

make_namespaces() {
    ip netns add "$left" && ip netns add "$right" &&
        ip -n "$left" link add swl0 type veth peer name swl0 netns "$right" &&
        ip -n "$left" addr add 10.213.77.1/30 dev swl0 && ip -n "$left" link set swl0 up &&
        ip -n "$right" addr add 10.213.77.2/30 dev swl0 && ip -n "$right" link set swl0 up
}

fail() {
    echo "tcp_hosts: $*"
    tail -n 40 "$log"
    exit 1
}

case $case in
loopback)
    timeout 250 "$program" - end "${shape[@]}" >"$log" 2>&1 || fail "the run failed"
    grep -q 'verification: PASSED' "$log" || fail "nothing was verified"
    ;;
possible)
    make_namespaces >"$log" 2>&1 && exit 0
    echo "network namespaces cannot be made here: $(tail -n 1 "$log")"
    exit 1
    ;;
namespaces | attacked)
    make_namespaces >"$log" 2>&1 || not_here
    export SWIMLANE_SOCKET_IFNAME=swl0 SWIMLANE_LOG=info
    if [ "$case" = attacked ]; then
        for host in "$left" "$right"; do
            ip -n "$host" link set lo up # by which a host reaches its own addresses
            "$attacker" "$host" &
            attackers+=($!)
        done
    fi
    for ((run = 0; run < 50; run++)); do
        timeout 250 "$program" "$left,$right" end "${shape[@]}" >"$log" 2>&1 || fail "the run failed"
        grep -q 'verification: PASSED' "$log" || fail "nothing was verified"
        [ "$case" = attacked ] && ! grep -q stranger "$log" || break
    done
    for host in 1 2; do
        grep -q "tcp at 10.213.77.$host:" "$log" || fail "nobody was in namespace $host"
    done
    if [ "$case" = attacked ]; then
        kill -0 "${attackers[@]}" || fail "an attacker has ended"
        lines=$(grep -c stranger "$log")
        # a line a second of each of eight ports, and the run ends after 100 seconds
        [ "$lines" -gt 0 ] && [ "$lines" -le 1600 ] || fail "$lines lines about strangers"
    fi
    ;;
interfaces)
    make_interfaces >"$log" 2>&1 || not_here
    export SWIMLANE_LOG=info
    for list in '' '^docker,veth'; do
        export SWIMLANE_SOCKET_IFNAME=$list
        timeout 250 "$program" "$left,$right" end "${shape[@]}" >"$log" 2>&1 || fail "the run failed"
        grep -q 'verification: PASSED' "$log" || fail "nothing was verified"
        for host in 1 2; do
            grep -q "tcp at 10.213.77.$host:.*(swl0)" "$log" || fail "another interface of host $host"
        done
        grep -q 'interface swl0: .*it has the default route' "$log" || fail "the reason is not said"
    done
    ;;
apart)
    for host in "$left" "$right"; do
        ip netns add "$host" >"$log" 2>&1 && ip -n "$host" link set lo up >>"$log" 2>&1 || not_here
    done
    export SWIMLANE_SOCKET_IFNAME=^docker,veth
    if timeout 250 "$program" "$left,$right" end "${shape[@]}" >"$log" 2>&1; then
        fail "two hosts met over loopback"
    fi
    grep -q 'rank 0 has the address 127.0.0.1 (lo) and rank 2, on another host, 127.0.0.1 (lo)' "$log" ||
        fail "no sentence with the addresses"
    ;;
killed)
    export NCCL_EP_TIMEOUT_MS=8000 # a busy host takes no longer for a step
    hosts=-
    if make_namespaces >"$log" 2>&1; then
        export SWIMLANE_SOCKET_IFNAME=swl0
        hosts=$left,$right
    elif [ "${CI:-}" = true ]; then
        fail "network namespaces cannot be made here"
    fi
    # pipelined: the calls under way notice it, not a barrier between them
    if timeout 250 "$program" "$hosts" kill "${shape[@]}" --pipelined --iterations 30 >"$log" 2>&1; then
        fail "nobody noticed that node 1 is gone"
    fi
    grep -q 'closed by the other end\|Connection reset\|Broken pipe' "$log" ||
        fail "no sentence about the connection"
    grep -q 'gave up after .* (limit 8000 ms): a queue pair to rank [23] ended with an error' "$log" ||
        fail "no sentence of the call"
    ;;
*)
    exit 2
    ;;
esac
