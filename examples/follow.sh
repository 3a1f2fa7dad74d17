#!/bin/sh
# How long each workload waited, from the log's events with jq: one JSON object per admission, with the workload, its
# ClusterQueue and the seconds from queued to admitted.
#   examples/follow.sh                       of the running cell
#   examples/follow.sh --log run.jsonl.gz    of an exported log
set -eu
headgate events --type 'workload.*' -o json "$@" | jq -nc '
  reduce inputs as $line ({queued: {}, admitted: []};
    ($line.time | sub("\\.[0-9]+Z$"; "Z") | fromdateiso8601) as $at
    | $line.event as $event
    | if $event.type == "workload.queued" then
        .queued[$event.workload] //= $at
      elif $event.type == "workload.admitted" then
        .admitted += [{workload: $event.workload, clusterQueue: $event.cluster_queue, waited_s: ($at - .queued[$event.workload])}]
      else . end)
  | .admitted[]'
