# usage: sh input/answer.sh LINES COMMAND...
# The first LINES that COMMAND prints, with sizes, rates and probabilities masked, and its exit code: what
# is answered, not to which digit.
lines=$1
shift
"$@" >"$SCRATCH/answer"
code=$?
head -n "$lines" "$SCRATCH/answer" | sed -Ef input/sizes.sed
exit $code
