#!/bin/sh
# Counts the words of a file, a line at a time: ./run.sh FILE
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

logqueue ensure lines --queue
logqueue ensure counts
logqueue append lines "$1" --format text
logqueue work lines --exec "$here/count-words" --raw -c 4 --reject-on 65 --once ||
    echo "some lines were rejected" >&2
logqueue read counts --data
